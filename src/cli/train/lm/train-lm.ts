/** `holdfast train lm`: its job in a run folder. */

import {
  checkJob,
  type JobResults,
  type JobRun,
  openJobRun,
  runJob,
  type TextRows,
} from "../../../lm/index.js";
import { loadTextData, type TextData, type TextDataOptions } from "../../../text/index.js";
import { trainInRun } from "../train-in-run.js";
import { type BaseFiles, openBase, shortHash } from "./open-base.js";
import {
  type LmOptions,
  recordedSettings,
  requireConsistent,
  samplesOf,
  settingsOf,
  usualHeldOut,
} from "./options.js";
import { type SavedFolders, saveResult } from "./save-result.js";
import { curveOfLm, describeLmEvent, type LmEvent, lmSummary } from "./texts.js";

/** The maximum of tokens in a row, if neither the model nor the user has a smaller one. */
const usualLength = 1024;

/** Trains a language model in a run folder and prints the progress. Returns the exit code. */
export async function trainLm(options: LmOptions): Promise<number> {
  requireConsistent(options);
  const samples = samplesOf(options);
  let folders: SavedFolders = {};
  return trainInRun<LmEvent, JobRun, JobResults>(options, {
    name: "lm",
    settings: recordedSettings(options),
    ...{ describe: describeLmEvent, curveOf: curveOfLm },
    summaryText: (results) => lmSummary(results, folders, options.model),
    load: async () => {
      const base = openBase(options);
      const { tokenizer } = base;
      const texts = await loadTexts(options, base);
      const { train, evaluation } = texts;
      return (device, out) => {
        const model = base.open(device);
        const perEpoch = Math.ceil(Math.ceil(train.rows / options.batch) / options.accumulate);
        const settings = settingsOf(options, perEpoch);
        const job = { device, model, settings, train, evaluation, tokenizer, ...(samples && { samples }) };
        // Before the run's folder is made.
        checkJob(job);
        return {
          settings: {
            ...{ modelChecksum: base.checksum, tokenizerChecksum: checksumOf(base), ...texts.checksums },
          },
          openRun: openJobRun,
          train: async ({ run, listen, signal, parallel }) => {
            const results = await runJob({
              ...{ ...job, listen, signal, run, parallel, shardOptimizer: options.shardOptimizer },
              ...(options.profile && { profile: true }),
            });
            if (!results) return undefined;
            if (parallel && parallel.world.rank > 0) return results;
            const phase = { kind: "phase", phase: "saving the model" } as const;
            run.note(phase);
            listen(phase);
            folders = saveResult(out, { device, model, tokenizer, options });
            listen({ kind: "saved", ...folders });
            return results;
          },
        };
      };
    },
  });
}

interface Texts {
  readonly train: TextRows;
  readonly evaluation: TextRows | undefined;
  readonly checksums: Readonly<Record<string, string>>;
}

/** Rows to train on, and rows of other files or held-out ones to evaluate on. */
async function loadTexts(options: LmOptions, { tokenizer, maxLength }: BaseFiles): Promise<Texts> {
  const { data, evalData, packing, longTexts, lossOn, template, seed } = options;
  const shared: TextDataOptions = {
    ...{ tokenizer, packing, lossOn, seed },
    length: options.length ?? Math.min(usualLength, maxLength ?? usualLength),
    ...(longTexts && { longTexts }),
    ...(template !== undefined && { template }),
  };
  const heldOut = evalData ? 0 : (options.heldOut ?? usualHeldOut);
  const trained = await loadTextData(data, { ...shared, heldOut });
  const evaluated: TextData | undefined = evalData && (await loadTextData(evalData, shared));
  return {
    ...{ train: trained.train, evaluation: evaluated?.train ?? trained.heldOut },
    checksums: {
      dataChecksum: trained.digest.slice(0, 16),
      ...(evaluated && { evalChecksum: evaluated.digest.slice(0, 16) }),
    },
  };
}

/** Of the tokenizer's files. */
function checksumOf({ tokenizer }: BaseFiles): string {
  return shortHash(
    Buffer.concat([...tokenizer.files].flatMap(([name, bytes]) => [Buffer.from(name), bytes])),
  );
}
