/**
 * Trainings of language models: a run that is ended anywhere and resumed leaves the files of one that was not, with all weights and with
 * LoRA; evaluations are exact; samples and texts that do not fit are rejected before the training.
 */

import assert from "node:assert/strict";
import { cpSync, linkSync, mkdirSync, readdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { before, describe, test } from "node:test";
import { recordsIn, tensorsIn } from "../../test/support/crossasset-runs.js";
import { openDevice } from "../../test/support/devices.js";
import { makeFolder } from "../../test/support/folders.js";
import { rejectsLater } from "../../test/support/rejects.js";
import { testDevice } from "../../test/support/test-device.js";
import { noGrad } from "../autograd/index.js";
import { LanguageModel, loadPretrained, modelFromConfig, savePretrained } from "../models/index.js";
import { type Device, manualSeed } from "../tensor/index.js";
import { ByteTokenizer, loadTextData, type TextData } from "../text/index.js";
import { readRun } from "../train/index.js";
import type { JobEvent, JobListener, JobResults } from "./events.js";
import { type JobOptions, runJob } from "./job.js";
import { openJobRun } from "./job-run.js";
import { defaultSettings, type JobSettings } from "./settings.js";
import { lossOf, type TextBatch } from "./text-rows.js";

const folder = makeFolder();
const tokenizer = new ByteTokenizer({ eosToken: "</s>" });
const sizes = { hidden_size: 16, intermediate_size: 24, num_hidden_layers: 1, num_attention_heads: 2 };
const config = { model_type: "llama", vocab_size: 257, ...sizes, max_position_embeddings: 32 };

/** Prompts and completions of different lengths, several in a row: batches have different numbers of tokens that count. */
const examples = Array.from({ length: 60 }, (_, index) => ({
  prompt: `${index}+${index % 7}=`,
  completion: `${index + (index % 7)}${"!".repeat(index % 5)}`,
}));
const file = join(folder, "sums.jsonl");
writeFileSync(file, examples.map((example) => `${JSON.stringify(example)}\n`).join(""));
const base = join(folder, "base");

let data: TextData;
before(async () => {
  data = await loadTextData(file, { tokenizer, length: 24, heldOut: 0.2, seed: 1 });
  const device = openDevice({ threads: 1 });
  manualSeed(1);
  savePretrained(modelFromConfig(config).to(device), base);
  device.close();
});

const settings: JobSettings = {
  ...{ ...defaultSettings, epochs: 2, batch: 3, accumulate: 2, lr: 1e-2, warmup: 0.2, seed: 5 },
};
const lora = { rank: 2, alpha: 4, dropout: 0.2, targets: "all-linear" } as const;

interface Trying extends Partial<Pick<JobOptions, "listen" | "signal" | "samples">> {
  readonly settings?: JobSettings;
  readonly path?: string;
}

function openModel(device: Device, { lora }: JobSettings): LanguageModel {
  const model = loadPretrained(base, { device, ...(lora && { frozen: true, dtype: "bf16" }) });
  assert.ok(model instanceof LanguageModel);
  return model;
}

/** Begins or resumes the run in a folder, as the command does. */
async function train(trying: Trying = {}): Promise<JobResults | undefined> {
  const { settings: own = settings, path, ...more } = trying;
  const device = openDevice({ threads: 1 });
  const run =
    path === undefined
      ? undefined
      : openJobRun({ path, settings: { ...own }, device: "x", recordedDevice: device });
  try {
    const model = openModel(device, own);
    const { train: rows, heldOut: evaluation } = data;
    const results = await runJob({
      ...{ device, model, settings: own, train: rows, evaluation, tokenizer, ...more },
      ...(run && { run }),
    });
    run?.end(results, results ? 0 : 3);
    return results;
  } catch (error) {
    run?.fail(error, 1);
    throw error;
  } finally {
    device.close();
  }
}

/** What a kill at this moment would leave. */
function copyRun(from: string, to: string): void {
  mkdirSync(join(to, "checkpoints"), { recursive: true });
  const hasCheckpoints = readdirSync(from).includes("checkpoints");
  for (const name of hasCheckpoints ? readdirSync(join(from, "checkpoints")) : [])
    linkSync(join(from, "checkpoints", name), join(to, "checkpoints", name));
  for (const name of readdirSync(from))
    if (!["checkpoints", "lock.json"].includes(name)) cpSync(join(from, name), join(to, name));
}

/** The sampled texts of a run's metrics. */
const textsIn = (run: string): readonly unknown[] =>
  readRun(run).metrics.flatMap(({ texts }) => (texts ? [texts] : []));

const samples = { prompts: ["3+3=", "9+2="], maxTokens: 4, temperature: 0.7 };

/** Two kinds of training, and the events after which copies of their folders stand for kills. */
const kinds = [
  {
    ...{ kind: "all weights", own: settings, samples: undefined },
    kills: { "before a checkpoint": "evaluation 4", "before the first step": "evaluation 0" },
  },
  {
    ...{ kind: "LoRA with dropout", own: { ...settings, accumulate: 1, lora, evalEvery: 3 }, samples },
    kills: { "after a checkpoint": "checkpoint 8" },
  },
] as const;

for (const { kind, own, samples, kills } of kinds) {
  describe(`a training of ${kind}`, {
    skip: testDevice === "emulator" && "minutes of training on an emulator",
  }, () => {
    const whole = join(folder, `${kind}, whole`);
    const cut = (name: string): string => join(folder, `${kind}, ${name}`);
    const events: JobEvent[] = [];
    let results: JobResults | undefined;

    before(async () => {
      const listen: JobListener = (event) => {
        events.push(event);
        const moment = "step" in event ? `${event.kind} ${event.step}` : event.kind;
        for (const [name, at] of Object.entries(kills)) if (moment === at) copyRun(whole, cut(name));
      };
      results = await train({ path: whole, settings: own, listen, ...(samples && { samples }) });
    });

    function requireSame(run: string): void {
      assert.deepEqual(recordsIn(run), recordsIn(whole));
      assert.deepEqual(textsIn(run), textsIn(whole));
      assert.equal(tensorsIn(run), tensorsIn(whole));
      const { state, step, of } = readRun(run).status ?? {};
      assert.deepEqual([state, step, of], ["finished", results?.steps, results?.steps]);
    }

    test("learns: the perplexity of held-out texts falls, and its events and metrics say so", () => {
      const {
        evaluations = [],
        epochs = [],
        steps = 0,
        parameters = 0,
        trainedParameters = 0,
      } = results ?? {};
      const perEpoch = Math.ceil(Math.ceil(data.train.rows / own.batch) / own.accumulate);
      assert.deepEqual([steps, epochs.length], [2 * perEpoch, 2]);
      const every = "evalEvery" in own ? own.evalEvery : perEpoch;
      assert.deepEqual(
        evaluations.map(({ step }) => step),
        Array.from({ length: steps + 1 }, (_, step) => step).filter(
          (step) => step % every === 0 || step === steps,
        ),
      );
      const isLora = "lora" in own;
      const [first, last] = [evaluations[0]?.perplexity ?? 0, evaluations.at(-1)?.perplexity ?? 999];
      assert.ok(last < (isLora ? 0.98 : 0.6) * first, `${first} ${last}`);
      assert.ok(isLora ? trainedParameters < parameters / 4 : trainedParameters === parameters);
      const { metrics } = readRun(whole);
      assert.deepEqual(
        metrics.flatMap(({ step, evaluation }) => (evaluation ? [{ step, ...evaluation }] : [])),
        evaluations,
      );
      assert.deepEqual(
        textsIn(whole),
        events.flatMap((event) => (event.kind === "samples" ? [event.texts] : [])),
      );
      const [{ data: figures }] = metrics as unknown as [{ data: { rows: number; tokens: number } }];
      assert.equal(figures.rows, data.train.rows);
      const step = events.findLast((event) => event.kind === "step");
      assert.ok(step?.kind === "step" && step.samplesPerSecond);
      const perRow = (step.tokensPerSecond ?? 0) / step.samplesPerSecond;
      assert.ok(Math.abs(perRow - figures.tokens / figures.rows) < 1e-9);
    });

    for (const moment of Object.keys(kills)) {
      test(`killed ${moment} leaves the same files`, async () => {
        await train({ path: cut(moment), settings: own, ...(samples && { samples }) });
        requireSame(cut(moment));
      });
    }

    if (!samples) return;
    test("stopped by a signal in an evaluation, a step and the last samples resumes to the same bits", async () => {
      const path = cut("stopped");
      let step = 0;
      for (const isEnd of [
        (event: JobEvent) => event.kind === "phase" && event.phase === "evaluating",
        (event: JobEvent) => event.kind === "step" && event.step === 2,
        (event: JobEvent) =>
          event.kind === "phase" && event.phase === "writing samples" && step === results?.steps,
      ]) {
        const halt = new AbortController();
        const listen: JobListener = (event) => {
          if (event.kind === "step") step = event.step;
          if (isEnd(event)) halt.abort();
        };
        assert.equal(await train({ path, settings: own, samples, listen, signal: halt.signal }), undefined);
        assert.equal(readRun(path).status?.state, "stopped");
      }
      await train({ path, settings: own, samples });
      requireSame(path);
    });
  });
}

test("an evaluation is the mean over all tokens that count, whatever the batches", async () => {
  const device = openDevice({ threads: 1 });
  const model = openModel(device, settings);
  const { train: rows, heldOut: evaluation } = data;
  assert.ok(evaluation && evaluation.rows > 2);
  const own = { ...settings, epochs: 1, maxSteps: 1, batch: 2, lr: 1e-30 };
  const results = await runJob({ device, model, settings: own, train: rows, evaluation });
  const all = evaluation.columns.map(({ elements, shape }) =>
    device.fromHost(elements as Int32Array, shape, "i32"),
  );
  const loss = device.step(() => noGrad(() => lossOf(model, all as unknown as TextBatch).item()));
  const { loss: found = 0, tokens } = results?.evaluations[0] ?? {};
  assert.ok(Math.abs(found - loss) < 1e-5, `${found} ${loss}`);
  const labels = evaluation.columns[1]?.elements as Int32Array;
  assert.equal(tokens, labels.filter((label) => label >= 0).length);
});

test("texts, prompts and settings that do not fit are rejected before the training", async () => {
  const long = await loadTextData(file, { tokenizer, length: 64 });
  const larger = new ByteTokenizer({ eosToken: "</s>", specialTokens: ["<a>"] });
  const foreign = join(folder, "foreign.txt");
  writeFileSync(foreign, "before <a> after");
  const other = await loadTextData(foreign, { tokenizer: larger, length: 24 });
  const device = openDevice({ threads: 1 });
  const options = { device, model: openModel(device, settings), settings, train: data.train };
  const attempts: readonly (readonly [Partial<JobOptions>, RegExp])[] = [
    [{ train: long.train }, /rows of the training texts have 64 tokens, and the model has 32 positions/],
    [{ evaluation: long.train }, /rows of the evaluation texts have 64 tokens/],
    [{ train: other.train }, /has the id 257, and the model has the ids 0 to 256\. Use the tokenizer/],
    [{ samples: { prompts: ["Hi"] } }, /samples need a tokenizer/],
    [
      { samples: { prompts: ["x".repeat(40)] }, tokenizer },
      /The prompt "x+…" has 40 tokens; the model has 32 positions\. Pass a prompt of 1 to 31/,
    ],
    [{ settings: { ...settings, batch: 0 } }, /batch is 0/],
  ];
  for (const [change, message] of attempts)
    await rejectsLater("BAD_ARGUMENT", runJob({ ...options, ...change }), message);
});

test("a rate that is far too high ends as diverged, and names the rate", {
  skip: testDevice === "emulator" && "a training on an emulator",
}, async () => {
  const path = join(folder, "diverged");
  const own = { ...settings, lr: 1e30, warmup: 0, epochs: 4 };
  await rejectsLater(
    "DIVERGED",
    train({ path, settings: own }),
    /The learning rate is 1e\+30: start a new run/,
  );
  assert.equal(readRun(path).status?.state, "diverged");
});
