/**
 * `npm run bench:gpu -- --only soak`: 10,000 eager steps of CrossAsset, and 10,000 compiled steps of a small
 * GPT with dropout. Memory must not grow after the first 500 (committed bytes, budget, the driver's free
 * memory, the JS heap, the process), and the loss must fall: both learn data with a rule.
 */

import { formatBytes } from "holdfast";
import { MiB } from "../../src/units/index.js";
import { readOptions } from "../../test/support/command-line.js";
import { heapAfterCollection } from "../../test/support/gc.js";
import { GptTraining } from "../../test/support/gpt-training.js";
import { commonOptions, count, type Gpu, openGpu } from "./options.js";
import { Results } from "./results.js";
import { makeRows, Training } from "./training.js";

const options = readOptions(import.meta.url, {
  ...commonOptions,
  models: { type: "string", default: "crossasset,gpt" },
  steps: { type: "string", default: "10000" },
  every: { type: "string", default: "500" },
  batch: { type: "string", default: "256" },
  rows: { type: "string", default: "16384" },
  precision: { type: "string", default: "tf32" },
  "gpt-batch": { type: "string", default: "16" },
});
const [steps, every] = [count("steps", options.steps), count("every", options.every)];
const [batch, rowCount] = [count("batch", options.batch), count("rows", options.rows)];
/** Over how many steps, first and last, the loss is averaged. */
const ends = Math.max(1, Math.min(100, Math.floor(steps / 4)));

interface Sample {
  readonly step: number;
  readonly stepMs: number;
  readonly committed: number;
  readonly budget: number;
  readonly free: number;
  readonly heap: number;
  readonly resident: number;
  readonly loss: number;
}

function sample({ device, driver }: Gpu, step: number, stepMs: number, loss: number): Sample {
  const { runtime } = device;
  return {
    step,
    stepMs,
    committed: runtime.arena.figures.committed,
    budget: runtime.budget.used,
    free: driver.memory().free,
    heap: heapAfterCollection(),
    resident: process.memoryUsage.rss(),
    loss,
  };
}

interface Soak {
  readonly samples: readonly Sample[];
  readonly firstLoss: number;
  readonly lastLoss: number;
}

/** A model in training. */
interface SoakedTraining {
  /** Reads the loss only if it is wanted. */
  step(isLossWanted: boolean): number;
}

const trainings: Readonly<Record<string, (gpu: Gpu) => SoakedTraining>> = {
  crossasset: ({ device }) => new Training(device, makeRows(rowCount, "taught"), { batch }),
  gpt: ({ device }) =>
    new GptTraining(device, {
      ...{ batch: count("gpt-batch", options["gpt-batch"]), width: 128, context: 64, layers: 4 },
    }),
};

function soak(gpu: Gpu, training: SoakedTraining, onSample: (sample: Sample) => void): Soak {
  const samples: Sample[] = [];
  const losses = { first: 0, last: 0 };
  let startedAt = performance.now();
  for (let step = 1; step <= steps; step++) {
    const isFirst = step <= ends;
    const isLast = step > steps - ends;
    const isSampled = step % every === 0 || step === steps;
    const loss = training.step(isFirst || isLast || isSampled);
    if (isFirst) losses.first += loss / ends;
    if (isLast) losses.last += loss / ends;
    if (!isSampled) continue;
    gpu.device.runtime.synchronize();
    const interval = step - (samples.at(-1)?.step ?? 0);
    const latest = sample(gpu, step, (performance.now() - startedAt) / interval, loss);
    samples.push(latest);
    onSample(latest);
    startedAt = performance.now();
  }
  return { samples, firstLoss: losses.first, lastLoss: losses.last };
}

const rowOf = ({ step, stepMs, committed, budget, free, heap, resident, loss }: Sample): string[] => [
  String(step),
  stepMs.toFixed(3),
  String(committed),
  String(budget),
  String(free),
  (heap / MiB).toFixed(2),
  (resident / MiB).toFixed(1),
  loss.toFixed(4),
];

/** The range of a figure from the first sample on, and its last value. */
function growthOf(samples: readonly Sample[], figure: keyof Sample): { spread: number; end: number } {
  const values = samples.map((sample) => sample[figure]);
  return { spread: Math.max(...values) - Math.min(...values), end: values.at(-1)! - values[0]! };
}

const results = new Results("soak", options);
for (const model of options.models.split(","))
  await results.attempt(`soak of ${model}`, () => checkModel(model));
results.finish();

function checkModel(model: string): void {
  const precision = options.precision as "f32" | "tf32" | "bf16";
  const train = trainings[model];
  if (!train) throw new Error(`--models takes ${Object.keys(trainings).join(", ")}; this is "${model}".`);
  const gpu = openGpu(options, { device: { precision } });
  try {
    const training = train(gpu);
    results.line(`${steps} steps of ${model} in ${precision}, a sample every ${every}`);
    const progress = (sample: Sample): void => console.log(rowOf(sample).join("  "));
    const { samples, firstLoss, lastLoss } = soak(gpu, training, progress);
    results.line();
    results.table([
      ["step", "ms a step", "committed B", "budget B", "free B", "heap MiB", "process MiB", "loss"],
      ...samples.map(rowOf),
    ]);
    const spreadOf = (figure: keyof Sample): number => growthOf(samples, figure).spread;
    for (const [figure, name] of [
      ["committed", "committed bytes"],
      ["budget", "the budget in use"],
      ["free", "the driver's free memory"],
    ] as const) {
      const text = `${model}, ${name}: changed by ${spreadOf(figure)} B in ${steps} steps`;
      results.require(spreadOf(figure) === 0, text);
    }
    const heap = growthOf(samples, "heap").end;
    results.require(heap < 4 * MiB, `${model}, the JS heap grew by ${formatSigned(heap)}`);
    const resident = growthOf(samples, "resident").end;
    results.require(resident < 64 * MiB, `${model}, the process grew by ${formatSigned(resident)}`);
    const text = `${model}, loss of the first ${ends} steps ${firstLoss.toFixed(4)}, of the last ${lastLoss.toFixed(4)}`;
    results.require(lastLoss < 0.9 * firstLoss, text);
  } finally {
    gpu.close();
  }
}

function formatSigned(size: number): string {
  return size < 0 ? `−${formatBytes(-size)}` : formatBytes(size);
}
