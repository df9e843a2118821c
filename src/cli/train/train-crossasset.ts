/** `holdfast train crossasset`: its job in a run folder. */

import {
  checksumOfBars,
  generateBars,
  type JobEvent,
  type JobResults,
  type JobRun,
  type JobSettings,
  openJobRun,
  readBars,
  runJob,
} from "../../crossasset/index.js";
import { makeFolder } from "../../data/index.js";
import { describeJobEvent } from "./crossasset-texts.js";
import type { RunOptions } from "./run-options.js";
import { summaryText } from "./summary.js";
import { type CurvePoint, epochPoint } from "./tensorboard.js";
import { trainInRun } from "./train-in-run.js";

/** Options as commander passes them. */
export interface TrainOptions
  extends RunOptions,
    Pick<
      JobSettings,
      "folds" | "epochs" | "batch" | "stride" | "seed" | "lr" | "dropout" | "width" | "layers"
    > {
  readonly bars?: string;
  readonly generate: number;
  readonly qkNorm?: boolean;
  readonly shuffleLabels?: boolean;
  readonly cache: string;
  readonly testEpochs?: boolean;
}

/** Trains CrossAsset in a run folder and prints its progress. Returns the exit code. */
export async function trainCrossAsset(options: TrainOptions): Promise<number> {
  const { bars: file, generate, seed, cache } = options;
  const { folds, epochs, batch, stride, lr, dropout, qkNorm = false, width, layers } = options;
  const settings: JobSettings = {
    ...{ folds, epochs, batch, stride, seed, lr, dropout, qkNorm },
    shuffledLabels: options.shuffleLabels ?? false,
    // Only named sizes are recorded: runs of earlier versions have none.
    ...(width !== undefined && { width }),
    ...(layers !== undefined && { layers }),
  };
  return trainInRun<JobEvent, JobRun, JobResults>(options, {
    name: "crossasset",
    settings: { ...settings, ...(file === undefined ? { generate } : { bars: file }) },
    ...{ describe: describeJobEvent, curveOf, summaryText },
    load: async () => {
      if (cache !== "off") makeFolder(cache);
      const bars = file === undefined ? generateBars({ bars: generate, seed }) : await readBars(file);
      const checksum = file === undefined ? {} : { checksum: checksumOfBars(bars).slice(0, 16) };
      return (device) => ({
        settings: checksum,
        openRun: openJobRun,
        train: ({ run, listen, signal, parallel }) =>
          runJob({
            ...{ device, settings, bars, source: file ?? `the generator, seed ${seed}`, run },
            ...{ cacheFolder: cache, listen, signal, parallel, shardOptimizer: options.shardOptimizer },
            ...(options.profile && { profile: true }),
            ...(options.testEpochs && { testsEpochs: true }),
          }),
      });
    },
  });
}

/** The points of an event's curves for TensorBoard. */
export function curveOf(event: JobEvent): CurvePoint | undefined {
  if (event.kind === "step") return event;
  if (event.kind === "epoch") {
    const { fold, step, record } = event;
    return epochPoint(step, record, { fold });
  }
  if (event.kind !== "fold end") return undefined;
  const { fold, test } = event.result;
  return { kind: "metrics", step: event.step, metrics: { fold, test } };
}
