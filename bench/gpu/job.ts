/**
 * `npm run bench:gpu -- --only job`: the whole CrossAsset job by its command, in float32, TF32 and bf16: speed, time by stage, memory and accuracy, compared with the majority class and an oracle that knows the market's regimes. Then a run that is ended by SIGTERM and by kill -9 and resumed: its last checkpoint has the bits of an uninterrupted run.
 *
 *   node --conditions=holdfast-source dist/bench/gpu/job.js --device cpu --samples 600 --batch 32 --epochs 2 --cut-epochs 3    a trial without a GPU
 */

import { copyFileSync, existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { crossasset, formatBytes } from "holdfast";
import { readOptions } from "../../test/support/command-line.js";
import { barsFor, deviceOption, oracleOfFolds } from "./job-data.js";
import {
  type Cut,
  checkpointsOf,
  eventsOf,
  type JobProcess,
  runJobProcess,
  timeBetween,
} from "./job-process.js";
import { commonOptions, count } from "./options.js";
import { Results } from "./results.js";
import { median } from "./training.js";

const options = readOptions(import.meta.url, {
  ...commonOptions,
  ...deviceOption,
  samples: { type: "string", default: "24613" },
  folds: { type: "string", default: "2" },
  epochs: { type: "string", default: "40" },
  batch: { type: "string", default: "256" },
  precisions: { type: "string", default: "f32,tf32,bf16" },
  /**
   * More seeds, to separate the effect of a precision on accuracies from chance; each seed has its own
   * bars.
   */
  seeds: { type: "string", default: "43,44,45,46" },
  /** Precisions of the runs that are ended and resumed; "none" skips them. */
  cut: { type: "string", default: "f32" },
  "cut-epochs": { type: "string", default: "4" },
  /** A process that takes longer is ended. */
  seconds: { type: "string", default: "180" },
  /** A folder that keeps a copy of results.json and metrics.jsonl of each precision. */
  raw: { type: "string", default: "" },
});
const [samples, folds] = [count("samples", options.samples), count("folds", options.folds)];
const [epochs, batch] = [count("epochs", options.epochs), count("batch", options.batch)];
const limitMs = 1000 * count("seconds", options.seconds);
/** The figure that the reference system reports on its own machine, batched and captured. */
const theirSamplesPerSecond = 12_500;
const allowedPoints = 1;

const argumentsOf = (precision: string, epochCount: number, seed?: string): string[] => [
  ...["--generate", String(barsFor(samples)), "--folds", String(folds)],
  ...["--epochs", String(epochCount), "--batch", String(batch), "--precision", precision],
  ...(seed === undefined ? [] : ["--seed", seed]),
];

interface Measured {
  readonly precision: string;
  readonly process: JobProcess;
  readonly results: crossasset.JobResults;
  readonly checkpoints: ReturnType<typeof checkpointsOf>;
}

async function measure(folder: string, precision: string, seed?: string): Promise<Measured> {
  const name = seed === undefined ? precision : `${precision}-seed-${seed}`;
  const out = join(folder, name);
  // Features are computed once: the precisions of a further seed share them.
  const cache = seed === undefined ? [] : ["--cache", join(folder, "features")];
  const process = await runJobProcess({
    ...{ common: options, device: options.device, limitMs },
    args: [...argumentsOf(precision, epochs, seed), ...cache, "--out", out],
  });
  keepRaw(out, name);
  const [end] = eventsOf(process, "end");
  if (process.code !== 0 || !end) throw new Error(endingOf(process));
  return { precision, process, results: end.results, checkpoints: checkpointsOf(out) };
}

function keepRaw(run: string, name: string): void {
  if (options.raw === "") return;
  mkdirSync(options.raw, { recursive: true });
  for (const file of ["results.json", "metrics.jsonl"]) {
    const path = join(run, file);
    if (existsSync(path)) copyFileSync(path, join(options.raw, `${name}-${file}`));
  }
}

function endingOf({ code, signal, errors, wallMs }: JobProcess): string {
  return `The process ended with ${code ?? signal} after ${(wallMs / 1000).toFixed(1)} s: ${errors || "no message"}`;
}

const seconds = (ms: number): string => (ms / 1000).toFixed(2);
const percent = (share: number): string => (100 * share).toFixed(2);
const whole = (value: number): string => Math.round(value).toLocaleString("en");

interface Figures {
  /** For each fold, the median of its epochs. */
  readonly ofFolds: readonly number[];
  readonly trainingMs: number;
  readonly trainedSamples: number;
}

function figuresOf({ results }: Measured): Figures {
  const records = results.folds.map((fold) => fold.epochs);
  return {
    ofFolds: records.map((ones) => median(ones.flatMap(({ samplesPerSecond }) => samplesPerSecond ?? []))),
    trainingMs: 1000 * records.flat().reduce((sum, record) => sum + record.seconds, 0),
    trainedSamples: results.folds.reduce((sum, fold) => sum + fold.trainSamples * fold.epochs.length, 0),
  };
}

function printSpeed(results: Results, all: readonly Measured[]): void {
  const rowOf = (title: string, cell: (job: Measured) => string): string[] => [title, ...all.map(cell)];
  const first = (job: Measured, kind: "device" | "data"): number =>
    job.process.heard.find(({ event }) => event.kind === kind)?.atMs ?? Number.NaN;
  const checkpointMs = ({ process }: Measured): number => timeBetween(process, "epoch", "checkpoint");
  const testMs = ({ process }: Measured): number => timeBetween(process, "checkpoint", "fold end");
  const featuresMs = ({ process }: Measured): number =>
    1000 * (eventsOf(process, "data")[0]?.seconds ?? Number.NaN);
  results.line(
    "samples/s: the median over epochs; with gathering rows, forward, backward, clip, AdamW, the new order and the smaller last batch; without plans, checkpoints and tests",
  );
  results.table([
    ["", ...all.map(({ precision }) => precision)],
    ...Array.from({ length: folds }, (_, fold) =>
      rowOf(`samples/s in fold ${fold + 1}`, (job) => whole(figuresOf(job).ofFolds[fold] ?? Number.NaN)),
    ),
    rowOf("samples/s of all epochs, with plans", (job) => {
      const { trainedSamples, trainingMs } = figuresOf(job);
      return whole((1000 * trainedSamples) / trainingMs);
    }),
    rowOf("samples/s of the whole job", (job) =>
      whole((1000 * figuresOf(job).trainedSamples) / job.process.wallMs),
    ),
    rowOf("the whole job, s", ({ process }) => seconds(process.wallMs)),
    rowOf("· until the device is open and bars are generated, s", (job) => seconds(first(job, "device"))),
    rowOf("· features, s", (job) => seconds(featuresMs(job))),
    rowOf("· epochs, s", (job) => seconds(figuresOf(job).trainingMs)),
    rowOf("· checkpoints, s", (job) => seconds(checkpointMs(job))),
    rowOf("· tests, s", (job) => seconds(testMs(job))),
    rowOf("· the rest, s", (job) => {
      const accounted =
        first(job, "device") + featuresMs(job) + figuresOf(job).trainingMs + checkpointMs(job) + testMs(job);
      return seconds(job.process.wallMs - accounted);
    }),
    rowOf("budget in use, maximum over steps", ({ process }) =>
      formatBytes(Math.max(...eventsOf(process, "step").map(({ usedBytes }) => usedBytes))),
    ),
    rowOf("the process on the host, peak", ({ process }) => formatBytes(process.hostBytes)),
    rowOf(
      "checkpoints at the end",
      ({ checkpoints }) => `${checkpoints.count}, ${formatBytes(checkpoints.bytes)}`,
    ),
    rowOf("steps skipped: not finite", ({ process }) =>
      String(eventsOf(process, "epoch").reduce((max, { record }) => Math.max(max, record.skipped), 0)),
    ),
  ]);
}

function printLearning(results: Results, all: readonly Measured[], oracle: readonly number[]): void {
  results.line("accuracy in per cent, on each fold's test split");
  results.table([
    ["", "fold", "train", "test", "train loss", "test loss", "accuracy", "majority", "oracle", "from f32"],
    ...all.flatMap(({ precision, results: { folds } }) =>
      folds.map(({ fold, trainSamples, testSamples, epochs: records, test }) => [
        ...[precision, String(fold + 1), whole(trainSamples), whole(testSamples)],
        ...[records.at(-1)?.loss.toFixed(4) ?? "", test.loss.toFixed(4)],
        ...[
          percent(test.accuracy),
          percent(test.majority),
          oracle[fold] === undefined ? "" : percent(oracle[fold]),
        ],
        pointsFromFirst(all, precision, fold)?.toFixed(2) ?? "",
      ]),
    ),
  ]);
  const shown = [...new Set([1, 2, 3, 4, 10, 20, 30, epochs])].filter((epoch) => epoch <= epochs);
  results.line("training loss after epochs");
  results.table([
    ["", "fold", ...shown.map(String)],
    ...all.flatMap(({ precision, results: { folds } }) =>
      folds.map(({ fold, epochs: records }) => [
        ...[precision, String(fold + 1)],
        ...shown.map((epoch) => records[epoch - 1]?.loss.toFixed(4) ?? ""),
      ]),
    ),
  ]);
}

function accuracyOf(all: readonly Measured[], precision: string, fold: number): number | undefined {
  return all.find((job) => job.precision === precision)?.results.folds[fold]?.test.accuracy;
}

/** The difference of a fold's accuracy from float32's, in points. */
function pointsFromFirst(all: readonly Measured[], precision: string, fold: number): number | undefined {
  const [accuracy, reference] = [accuracyOf(all, precision, fold), accuracyOf(all, "f32", fold)];
  return accuracy === undefined || reference === undefined ? undefined : 100 * (accuracy - reference);
}

/**
 * Every fold of every seed: float32's accuracy, and the differences of the others, in points; then their
 * means.
 */
function printSeeds(results: Results, seeds: ReadonlyMap<string, readonly Measured[]>): void {
  const precisions = options.precisions.split(",");
  const others = precisions.filter((precision) => precision !== "f32");
  const complete = [...seeds].filter(([, all]) => all.length === precisions.length);
  const rows = complete.flatMap(([seed, all]) =>
    Array.from({ length: folds }, (_, fold) => ({
      ...{ seed, fold, accuracy: accuracyOf(all, "f32", fold) ?? Number.NaN },
      points: others.map((precision) => pointsFromFirst(all, precision, fold) ?? Number.NaN),
    })),
  );
  if (rows.length === 0) return;
  const meanOf = (values: readonly number[]): number =>
    values.reduce((sum, value) => sum + value, 0) / values.length;
  const deviationOf = (values: readonly number[]): number =>
    Math.sqrt(meanOf(values.map((value) => (value - meanOf(values)) ** 2)));
  const pointsOf = (index: number): number[] => rows.map(({ points }) => points[index] ?? Number.NaN);
  const signed = (points: number): string => `${points >= 0 ? "+" : ""}${points.toFixed(2)}`;
  results.line(`accuracies of ${complete.length} seeds, each with its own bars, weights and order of rows`);
  results.table([
    ["seed", "fold", "f32, %", ...others.map((precision) => `${precision}, points from f32`)],
    ...rows.map(({ seed, fold, accuracy, points }) => [
      ...[seed, String(fold + 1), percent(accuracy), ...points.map(signed)],
    ]),
    [
      "mean",
      "",
      percent(meanOf(rows.map(({ accuracy }) => accuracy))),
      ...others.map((_, index) => signed(meanOf(pointsOf(index)))),
    ],
    [
      "deviation",
      "",
      percent(deviationOf(rows.map(({ accuracy }) => accuracy))),
      ...others.map((_, index) => deviationOf(pointsOf(index)).toFixed(2)),
    ],
  ]);
  for (const [index, precision] of others.entries()) {
    const mean = meanOf(pointsOf(index));
    const largest = pointsOf(index).reduce((a, other) => (Math.abs(other) > Math.abs(a) ? other : a), 0);
    results.aim(
      Math.abs(mean) <= allowedPoints,
      `${precision}: ${signed(mean)} points from f32 in the mean of ${rows.length} folds of ${complete.length} seeds, ${signed(largest)} at most; ${allowedPoints} allowed`,
    );
  }
}

function requireBounds(results: Results, all: readonly Measured[]): void {
  for (const job of all) {
    const { precision } = job;
    const slowest = Math.min(...figuresOf(job).ofFolds);
    results.aim(
      slowest > theirSamplesPerSecond,
      `${precision}: ${whole(slowest)} samples/s in the slower fold; target ${whole(theirSamplesPerSecond)}`,
    );
    for (const { fold, test } of job.results.folds) {
      const { accuracy, majority } = test;
      results.aim(
        accuracy > majority,
        `${precision} fold ${fold + 1}: accuracy ${percent(accuracy)} %, majority class ${percent(majority)} %`,
      );
      const points = pointsFromFirst(all, precision, fold);
      if (precision !== "f32" && points !== undefined)
        results.aim(
          Math.abs(points) <= allowedPoints,
          `${precision} fold ${fold + 1}: ${points.toFixed(2)} points from f32; ${allowedPoints} allowed`,
        );
    }
  }
}

/**
 * Where a run is ended: in the first fold by a signal that it handles, in the last one by two that it cannot
 * handle.
 */
const cuts: readonly Cut[] = [
  { signal: "SIGTERM", afterMs: 10, isAt: (event) => event.kind === "epoch" && event.fold === 0 },
  { signal: "SIGKILL", afterMs: 20, isAt: (event) => event.kind === "epoch" && event.fold === folds - 1 },
  { signal: "SIGKILL", afterMs: 0, isAt: (event) => event.kind === "epoch" && event.fold === folds - 1 },
];

async function cutAndGoOn(results: Results, folder: string, precision: string): Promise<void> {
  const epochCount = count("cut-epochs", options["cut-epochs"]);
  // Features are not measured here, so the runs share them.
  const args = [...argumentsOf(precision, epochCount), "--cache", join(folder, "features")];
  const run = (out: string, cut?: Cut, more: readonly string[] = []): Promise<JobProcess> =>
    runJobProcess({
      ...{ common: options, device: options.device, limitMs, ...(cut && { cut }) },
      args: [...args, "--out", out, ...more],
    });
  const [whole, parted] = [join(folder, `whole-${precision}`), join(folder, `cut-${precision}`)];
  const uncut = await run(whole);
  if (uncut.code !== 0) throw new Error(endingOf(uncut));
  results.line(`${precision}: a run of ${epochCount} epochs that is ended ${cuts.length} times`);
  const rows: string[][] = [];
  let landed = 0;
  for (const cut of [...cuts, undefined]) {
    if (existsSync(join(parted, "results.json"))) break;
    const isFirst = rows.length === 0;
    const process = await run(parted, cut, isFirst ? [] : ["--resume"]);
    const isCut = process.signal !== null || process.code === 3;
    if (isCut) landed++;
    else if (process.code !== 0) throw new Error(endingOf(process));
    rows.push([
      isFirst ? "begins" : `resumes from step ${eventsOf(process, "resumed")[0]?.step ?? "?"}`,
      cut?.signal ?? "",
      String(process.code ?? process.signal),
      String(eventsOf(process, "epoch").length),
      existsSync(join(parted, "checkpoints")) ? checkpointsOf(parted).last : "",
      seconds(process.wallMs),
    ]);
    console.log(rows.at(-1)?.join("  "));
  }
  results.table([["", "signal", "ended with", "epochs", "last checkpoint", "s"], ...rows]);
  const [resumed, other] = [checkpointsOf(parted), checkpointsOf(whole)];
  results.line(
    `sha256 of the last checkpoint's tensors: interrupted ${resumed.sha256}, uninterrupted ${other.sha256}`,
  );
  results.line();
  results.aim(
    landed === cuts.length,
    `${precision}: ${landed} of ${cuts.length} signals interrupted the run`,
  );
  results.aim(
    resumed.sha256 === other.sha256 && resumed.last === other.last,
    `${precision}: weights, moments and random state of the resumed run are ${resumed.sha256 === other.sha256 ? "" : "not "}those of the uninterrupted run, byte for byte (${resumed.last}, ${other.last})`,
  );
  const isEqual = measuredIn(parted) === measuredIn(whole);
  results.aim(
    isEqual,
    `${precision}: every epoch's loss and every test figure are ${isEqual ? "" : "not "}the same`,
  );
}

/** All figures that follow from the weights; times differ from run to run. */
function measuredIn(run: string): string {
  const { folds } = JSON.parse(readFileSync(join(run, "results.json"), "utf8")) as crossasset.JobResults;
  return JSON.stringify(
    folds.map(({ test, perScale, epochs: records }) => [test, perScale, records.map(({ loss }) => loss)]),
  );
}

async function main(): Promise<void> {
  const results = new Results("job", options);
  const folder = mkdtempSync(join(tmpdir(), "holdfast-job-bench-"));
  const measured: Measured[] = [];
  try {
    results.line(
      `holdfast train crossasset --device ${options.device} ${argumentsOf("P", epochs).join(" ")}: ${samples} samples`,
    );
    results.line();
    for (const precision of options.precisions.split(",")) {
      await results.attempt(precision, async () => {
        const job = await measure(folder, precision);
        measured.push(job);
        const { ofFolds, trainingMs } = figuresOf(job);
        const accuracies = job.results.folds.map(({ test }) => `${percent(test.accuracy)} %`);
        results.line(
          `${precision}: ${seconds(job.process.wallMs)} s, of them ${seconds(trainingMs)} in epochs; ${ofFolds.map(whole).join(" and ")} samples/s; accuracy ${accuracies.join(" and ")}`,
        );
      });
    }
    results.line();
    const oracle: number[] = [];
    await results.attempt("the oracle", () => void oracle.push(...oracleOfFolds(samples, folds)));
    if (measured.length > 0) {
      await results.attempt("the table of times", () => printSpeed(results, measured));
      await results.attempt("the table of accuracies", () => printLearning(results, measured, oracle));
      requireBounds(results, measured);
    }
    const seeds = new Map<string, readonly Measured[]>([[String(crossasset.defaultSettings.seed), measured]]);
    for (const seed of options.seeds === "none" ? [] : options.seeds.split(",")) {
      const jobs: Measured[] = [];
      seeds.set(seed, jobs);
      for (const precision of options.precisions.split(","))
        await results.attempt(
          `${precision} of seed ${seed}`,
          async () => void jobs.push(await measure(folder, precision, seed)),
        );
    }
    await results.attempt("the table of seeds", () => printSeeds(results, seeds));
    for (const precision of options.cut === "none" ? [] : options.cut.split(",")) {
      await results.attempt(`${precision}, ended and resumed`, () => cutAndGoOn(results, folder, precision));
    }
  } finally {
    results.finish();
    rmSync(folder, { recursive: true, force: true });
  }
}

await main();
