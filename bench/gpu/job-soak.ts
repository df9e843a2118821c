/**
 * `npm run bench:gpu -- --only job-soak`: 10,000 compiled steps of the CrossAsset job by its trainer, with eager training steps and eager evaluations between them. Each runs in its own step, whose end resets the arena; there are also explicit resets. Dead memory is full of NaN and the watchdog is armed. Memory must not grow after the first sample, nothing may be reported, every number must be finite, and the loss must fall.
 *
 *   node --conditions=holdfast-source dist/bench/gpu/job-soak.js --device cpu --samples 300 --batch 16 --steps 60 --every 20    a trial without a GPU
 */

import { mkdtempSync, readdirSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import {
  crossasset,
  formatBytes,
  manualSeed,
  nn,
  noGrad,
  optim,
  type Tensor,
  TensorDataset,
  Trainer,
} from "holdfast";
import type { GemmPrecision } from "../../src/driver/index.js";
import { MiB } from "../../src/units/index.js";
import { readOptions } from "../../test/support/command-line.js";
import { heapAfterCollection } from "../../test/support/gc.js";
import { type AskedDevice, deviceOption, makeFolds, openAsked, rowsOf } from "./job-data.js";
import { commonOptions, count } from "./options.js";
import { Results } from "./results.js";
import { C, F, type Rows, S } from "./training.js";

const options = readOptions(import.meta.url, {
  ...commonOptions,
  ...deviceOption,
  samples: { type: "string", default: "24613" },
  batch: { type: "string", default: "256" },
  steps: { type: "string", default: "10000" },
  every: { type: "string", default: "1000" },
  precision: { type: "string", default: "f32" },
  "stall-after": { type: "string", default: "30s" },
  /** The soak ends after this time and reports the steps so far. */
  seconds: { type: "string", default: "150" },
});
const [steps, every, batch] = [
  count("steps", options.steps),
  count("every", options.every),
  count("batch", options.batch),
];
/** The number of compiled steps between two eager evaluations, eager training steps and explicit resets. */
const between = { evaluation: 5, training: 10, reset: 100 } as const;
/** Over how many steps, first and last, the loss is averaged. */
const ends = Math.max(1, Math.min(100, Math.floor(steps / 4)));
const { seed, lr } = crossasset.defaultSettings;

interface Sample {
  readonly step: number;
  readonly stepMs: number;
  readonly committed: number;
  readonly live: number;
  readonly pins: number;
  readonly budget: number;
  readonly free: number;
  readonly heap: number;
  readonly resident: number;
  readonly skipped: number;
  readonly plans: number;
  /** The mean of the last hundred. */
  readonly loss: number;
}

const columns: readonly (readonly [title: string, cell: (sample: Sample) => string])[] = [
  ["step", ({ step }) => String(step)],
  ["ms a step", ({ stepMs }) => stepMs.toFixed(3)],
  ["committed B", ({ committed }) => String(committed)],
  ["live B", ({ live }) => String(live)],
  ["pins", ({ pins }) => String(pins)],
  ["budget B", ({ budget }) => String(budget)],
  ["free B", ({ free }) => String(free)],
  ["heap MiB", ({ heap }) => (heap / MiB).toFixed(2)],
  ["process MiB", ({ resident }) => (resident / MiB).toFixed(1)],
  ["plans", ({ plans }) => String(plans)],
  ["skipped", ({ skipped }) => String(skipped)],
  ["loss", ({ loss }) => loss.toFixed(4)],
];

const widths = columns.map(([title]) => (title.endsWith(" B") ? 12 : Math.max(7, title.length)));

/** Figures that must not change at all. */
const flat = [
  ["committed", "committed bytes"],
  ["live", "live bytes"],
  ["pins", "pins"],
  ["budget", "the budget in use"],
  ["free", "the driver's free memory"],
  ["plans", "plans of the step"],
] as const;

interface Soak {
  readonly samples: readonly Sample[];
  /** Of the compiled steps, in order. */
  readonly losses: readonly number[];
  /** Of eager steps. */
  readonly trained: readonly number[];
  readonly evaluated: readonly number[];
  readonly resets: { readonly bySteps: number; readonly byCall: number };
  readonly isOverdue: boolean;
}

async function soak(
  opened: AskedDevice,
  train: Rows,
  test: Rows,
  onSample: (sample: Sample) => void,
): Promise<Soak> {
  const { device } = opened;
  const { runtime } = device;
  manualSeed(seed);
  const model = new crossasset.CrossAsset().to(device);
  const parameters = model.parameters();
  const optimizer = new optim.AdamW(parameters, { lr });
  const lossOf = (x: Tensor, labels: Tensor): Tensor =>
    nn.functional.crossEntropy(model.forward(x).reshape([-1, C]), labels.reshape([-1]));
  const [trained, evaluated, samples]: [number[], number[], Sample[]] = [[], [], []];

  /** Rows that are uploaded inside a step, and die with it. */
  const draw = ({ count: all, x, labels }: Rows, round: number): [Tensor, Tensor] => {
    const size = Math.min(batch, all);
    const from = (round * size) % (all - size + 1);
    return [
      device.fromHost(x.subarray(from * S * F, (from + size) * S * F), [size, S, F], "f32", "rows"),
      device.fromHost(labels.subarray(from * S, (from + size) * S), [size, S], "i32", "labels"),
    ];
  };
  const trainEagerly = (): number =>
    device.step(() => {
      const loss = lossOf(...draw(train, trained.length));
      loss.backward();
      optim.clipGradNorm(parameters, 1, { errorIfNonfinite: false });
      optimizer.step();
      optimizer.zeroGrad();
      return loss.item();
    });
  const evaluateEagerly = (): number =>
    device.step(() => noGrad(() => lossOf(...draw(test, evaluated.length)).item()));

  const halt = new AbortController();
  const startedAt = performance.now();
  let [sinceMs, isOverdue] = [startedAt, false];
  const sampleAt = (step: number): void => {
    runtime.synchronize();
    trainer.compiled?.flush();
    const { committed, live, pins } = runtime.arena.figures;
    const recent = (trainer.compiled?.history["loss"] ?? []).slice(-100);
    const sample: Sample = {
      ...{ step, stepMs: (performance.now() - sinceMs) / (step - (samples.at(-1)?.step ?? 0)) },
      ...{ committed, live, pins, budget: runtime.budget.used, free: opened.free() },
      ...{ heap: heapAfterCollection(), resident: process.memoryUsage.rss() },
      ...{ skipped: trainer.compiled?.skipped ?? 0, plans: trainer.compiled?.plans ?? 0 },
      loss: meanOf(recent),
    };
    samples.push(sample);
    onSample(sample);
    sinceMs = performance.now();
  };
  const data = new TensorDataset(
    { values: train.x, shape: [train.count, S, F] },
    { values: train.labels, shape: [train.count, S] },
  );
  const trainer = new Trainer({
    ...{ device, model, optimizer, data, batchSize: batch, seed, clipNorm: 1, loss: lossOf },
    ...{ epochs: Math.ceil(steps / Math.ceil(train.count / batch)), signal: halt.signal },
    onStep: ({ progress: { step } }) => {
      if (step % between.evaluation === 0) evaluated.push(evaluateEagerly());
      if (step % between.training === 0) trained.push(trainEagerly());
      if (step % between.reset === 0) runtime.arena.reset();
      if (step % every === 0 || step === steps) sampleAt(step);
      isOverdue = performance.now() - startedAt > 1000 * count("seconds", options.seconds);
      if (step === steps || isOverdue) halt.abort();
    },
  });
  try {
    await trainer.run();
    trainer.compiled?.flush();
    const { resetsByStep: bySteps, resetsByCall: byCall } = runtime.arena.figures;
    const losses = [...(trainer.compiled?.history["loss"] ?? [])];
    return { samples, losses, trained, evaluated, resets: { bySteps, byCall }, isOverdue };
  } finally {
    trainer.close();
  }
}

function meanOf(values: readonly number[]): number {
  return values.reduce((sum, value) => sum + value, 0) / values.length;
}

function requireBounds(results: Results, outcome: Soak, stalls: readonly string[]): void {
  const { samples, losses, trained, evaluated, isOverdue } = outcome;
  results.aim(!isOverdue && losses.length === steps, `${losses.length} of ${steps} compiled steps ran`);
  for (const [figure, name] of flat) {
    const values = samples.map((sample) => sample[figure]).filter((value) => !Number.isNaN(value));
    const moved = Math.max(...values) - Math.min(...values);
    if (values.length > 0)
      results.aim(moved === 0, `${name}: changed by ${moved} over ${values.length} samples`);
  }
  const grownBy = (figure: "heap" | "resident"): number =>
    (samples.at(-1)?.[figure] ?? Number.NaN) - (samples[0]?.[figure] ?? Number.NaN);
  results.aim(grownBy("heap") < 4 * MiB, `the JS heap grew by ${formatSigned(grownBy("heap"))}`);
  results.aim(grownBy("resident") < 64 * MiB, `the process grew by ${formatSigned(grownBy("resident"))}`);
  const all = [...losses, ...trained, ...evaluated];
  const nonFinite = all.filter((loss) => !Number.isFinite(loss)).length;
  results.aim(nonFinite === 0, `${nonFinite} of ${all.length} losses are not finite`);
  const skipped = samples.at(-1)?.skipped;
  results.aim(skipped === 0, `${skipped} steps were skipped because a gradient was not finite`);
  results.aim(
    stalls.length === 0,
    `${stalls.length} stall reports${stalls.map((name) => ` ${name}`).join("")}`,
  );
  const [first, last] = [meanOf(losses.slice(0, ends)), meanOf(losses.slice(-ends))];
  results.aim(
    last < 0.9 * first,
    `loss of the first ${ends} compiled steps ${first.toFixed(4)}, of the last ${last.toFixed(4)}`,
  );
}

function formatSigned(size: number): string {
  return size < 0 ? `−${formatBytes(-size)}` : formatBytes(size);
}

async function main(): Promise<void> {
  const results = new Results("job-soak", options);
  const reports = mkdtempSync(join(tmpdir(), "holdfast-soak-reports-"));
  const stalls = (): readonly string[] => readdirSync(reports);
  try {
    await results.attempt("soak", async () => {
      const { samples, folds } = makeFolds(
        count("samples", options.samples),
        crossasset.defaultSettings.folds,
      );
      const fold = folds.at(-1)!;
      const [train, test] = [rowsOf(samples, fold, fold.train), rowsOf(samples, fold, fold.test)];
      const opened = openAsked(options, options.device, {
        ...{ precision: options.precision as GemmPrecision, poison: true },
        ...{ stallAfter: options["stall-after"], onStall: "report", reports },
      });
      try {
        const { poison, stallAfter } = opened.device.runtime.settings;
        results.line(
          `${steps} compiled steps of ${batch} rows out of ${train.count}, ${options.precision}; poison ${poison ? "on" : "off"}, a stall is reported after ${stallAfter} ms; ` +
            `after every ${between.evaluation}th an eager evaluation, every ${between.training}th an eager training step, every ${between.reset}th an explicit reset`,
        );
        // Row by row, so that an interrupted run has printed all of its samples.
        const row = (cells: readonly string[]): void =>
          results.line(`  ${cells.map((cell, index) => cell.padStart(widths[index]!)).join("  ")}`);
        row(columns.map(([title]) => title));
        const outcome = await soak(opened, train, test, (sample) =>
          row(columns.map(([, cell]) => cell(sample))),
        );
        results.line();
        const { trained, evaluated, resets } = outcome;
        results.line(
          `${trained.length} eager training steps, last loss ${trained.at(-1)?.toFixed(4)}; ${evaluated.length} eager evaluations of the test split; the arena was reset by ${resets.bySteps} steps and ${resets.byCall} explicit calls`,
        );
        requireBounds(results, outcome, stalls());
      } finally {
        opened.close();
      }
    });
  } finally {
    results.finish();
    rmSync(reports, { recursive: true, force: true });
  }
}

await main();
