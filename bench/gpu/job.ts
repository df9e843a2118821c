/**
 * `npm run bench:gpu -- --only job`: the whole CrossAsset job by its command, in float32, TF32 and bf16: how fast it trains, where
 * its time goes, what it holds, and how often it is right, beside the commonest class and an oracle that knows the market's
 * regimes. Then a run that is ended by SIGTERM and by kill -9 and goes on: its last checkpoint has the bits of a run that was not.
 *
 *   node --conditions=holdfast-source dist/bench/gpu/job.js --device cpu --samples 600 --batch 32 --epochs 2 --cut-epochs 3    a trial without a GPU
 */

import { copyFileSync, existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { crossasset, formatBytes } from "holdfast";
import { barsFor, deviceOption, oracleOfFolds } from "./job-data.js";
import { type Cut, checkpointsOf, type JobProcess, runJobProcess, timeBetween, told } from "./job-process.js";
import { commonOptions, count } from "./options.js";
import { Results } from "./results.js";
import { median } from "./training.js";

const { values: options } = parseArgs({
  options: {
    ...commonOptions,
    ...deviceOption,
    samples: { type: "string", default: "24613" },
    folds: { type: "string", default: "2" },
    epochs: { type: "string", default: "40" },
    batch: { type: "string", default: "256" },
    precisions: { type: "string", default: "f32,tf32,bf16" },
    /** More seeds, to tell what a precision does to accuracies from what chance does; with "42" each has bars of its own. */
    seeds: { type: "string", default: "43,44,45,46" },
    /** Precisions of the runs that are ended and go on; "none" leaves them out. */
    cut: { type: "string", default: "f32" },
    "cut-epochs": { type: "string", default: "4" },
    /** A process that takes longer is ended. */
    seconds: { type: "string", default: "180" },
    /** Where results.json and metrics.jsonl of each precision are kept besides. */
    raw: { type: "string", default: "" },
  },
});
const [samples, folds] = [count("samples", options.samples), count("folds", options.folds)];
const [epochs, batch] = [count("epochs", options.epochs), count("batch", options.batch)];
const limitMs = 1000 * count("seconds", options.seconds);
/** What the system that this one answers reports, batched and captured, on its own machine. */
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
  // Features are measured once: the precisions of one more seed share them.
  const cache = seed === undefined ? [] : ["--cache", join(folder, "features")];
  const process = await runJobProcess({
    ...{ common: options, device: options.device, limitMs },
    args: [...argumentsOf(precision, epochs, seed), ...cache, "--out", out],
  });
  keepRaw(out, name);
  const [end] = told(process, "end");
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
  return `The process ended with ${code ?? signal} after ${(wallMs / 1000).toFixed(1)} s: ${errors || "no word"}`;
}

const seconds = (ms: number): string => (ms / 1000).toFixed(2);
const percent = (share: number): string => (100 * share).toFixed(2);
const whole = (value: number): string => Math.round(value).toLocaleString("en");

interface Figures {
  /** Of each fold, the median of its epochs. */
  readonly ofFolds: readonly number[];
  readonly trainingMs: number;
  readonly trainedSamples: number;
}

function figuresOf({ results }: Measured): Figures {
  const records = results.folds.map((fold) => fold.epochs);
  return {
    ofFolds: records.map((ones) => median(ones.flatMap(({ samplesPerSecond }) => samplesPerSecond ?? []))),
    trainingMs: 1000 * records.flat().reduce((sum, one) => sum + one.seconds, 0),
    trainedSamples: results.folds.reduce((sum, fold) => sum + fold.trainSamples * fold.epochs.length, 0),
  };
}

function tellSpeed(results: Results, all: readonly Measured[]): void {
  const rowOf = (title: string, cell: (one: Measured) => string): string[] => [title, ...all.map(cell)];
  const first = (one: Measured, kind: "device" | "data"): number =>
    one.process.heard.find(({ event }) => event.kind === kind)?.atMs ?? Number.NaN;
  const checkpointMs = ({ process }: Measured): number => timeBetween(process, "epoch", "checkpoint");
  const testMs = ({ process }: Measured): number => timeBetween(process, "checkpoint", "fold end");
  const featuresMs = ({ process }: Measured): number =>
    1000 * (told(process, "data")[0]?.seconds ?? Number.NaN);
  results.line(
    "samples/s: the median over epochs; rows gathered on the device, forward, backward, clip, AdamW, the new order and the smaller last batch; plans, checkpoints and tests are not in it",
  );
  results.table([
    ["", ...all.map(({ precision }) => precision)],
    ...Array.from({ length: folds }, (_, fold) =>
      rowOf(`samples/s in fold ${fold + 1}`, (one) => whole(figuresOf(one).ofFolds[fold] ?? Number.NaN)),
    ),
    rowOf("samples/s of all epochs, plans and all", (one) => {
      const { trainedSamples, trainingMs } = figuresOf(one);
      return whole((1000 * trainedSamples) / trainingMs);
    }),
    rowOf("samples/s of the whole job", (one) =>
      whole((1000 * figuresOf(one).trainedSamples) / one.process.wallMs),
    ),
    rowOf("the whole job, s", ({ process }) => seconds(process.wallMs)),
    rowOf("· until the device is open, bars made, s", (one) => seconds(first(one, "device"))),
    rowOf("· features, s", (one) => seconds(featuresMs(one))),
    rowOf("· epochs, s", (one) => seconds(figuresOf(one).trainingMs)),
    rowOf("· checkpoints, s", (one) => seconds(checkpointMs(one))),
    rowOf("· tests, s", (one) => seconds(testMs(one))),
    rowOf("· the rest, s", (one) => {
      const known =
        first(one, "device") + featuresMs(one) + figuresOf(one).trainingMs + checkpointMs(one) + testMs(one);
      return seconds(one.process.wallMs - known);
    }),
    rowOf("budget in use, the most that a step told", ({ process }) =>
      formatBytes(Math.max(...told(process, "step").map(({ usedBytes }) => usedBytes))),
    ),
    rowOf("the process on the host, at most", ({ process }) => formatBytes(process.hostBytes)),
    rowOf(
      "checkpoints at the end",
      ({ checkpoints }) => `${checkpoints.count}, ${formatBytes(checkpoints.bytes)}`,
    ),
    rowOf("steps skipped: not finite", ({ process }) =>
      String(told(process, "epoch").reduce((most, { record }) => Math.max(most, record.skipped), 0)),
    ),
  ]);
}

function tellLearning(results: Results, all: readonly Measured[], oracle: readonly number[]): void {
  results.line("accuracy in per cent, of each fold's test part");
  results.table([
    ["", "fold", "train", "test", "train loss", "test loss", "accuracy", "majority", "oracle", "from f32"],
    ...all.flatMap(({ precision, results: { folds: found } }) =>
      found.map(({ fold, trainSamples, testSamples, epochs: records, test }) => [
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
    ...all.flatMap(({ precision, results: { folds: found } }) =>
      found.map(({ fold, epochs: records }) => [
        ...[precision, String(fold + 1)],
        ...shown.map((epoch) => records[epoch - 1]?.loss.toFixed(4) ?? ""),
      ]),
    ),
  ]);
}

function accuracyOf(all: readonly Measured[], precision: string, fold: number): number | undefined {
  return all.find((one) => one.precision === precision)?.results.folds[fold]?.test.accuracy;
}

/** How far a fold's accuracy is from float32's, in points. */
function pointsFromFirst(all: readonly Measured[], precision: string, fold: number): number | undefined {
  const [own, reference] = [accuracyOf(all, precision, fold), accuracyOf(all, "f32", fold)];
  return own === undefined || reference === undefined ? undefined : 100 * (own - reference);
}

/** Every fold of every seed: float32's accuracy, and how far the others are from it, in points; then their means. */
function tellSeeds(results: Results, seeds: ReadonlyMap<string, readonly Measured[]>): void {
  const precisions = options.precisions.split(",");
  const others = precisions.filter((precision) => precision !== "f32");
  const found = [...seeds].filter(([, all]) => all.length === precisions.length);
  const rows = found.flatMap(([seed, all]) =>
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
  results.line(`accuracies of ${found.length} seeds, each with its own bars, weights and order of rows`);
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
    const most = pointsOf(index).reduce((one, other) => (Math.abs(other) > Math.abs(one) ? other : one), 0);
    results.aim(
      Math.abs(mean) <= allowedPoints,
      `${precision}: ${signed(mean)} points from f32 in the mean of ${rows.length} folds of ${found.length} seeds, ${signed(most)} at most; ${allowedPoints} allowed`,
    );
  }
}

function requireBounds(results: Results, all: readonly Measured[]): void {
  for (const one of all) {
    const { precision } = one;
    const slowest = Math.min(...figuresOf(one).ofFolds);
    results.aim(
      slowest > theirSamplesPerSecond,
      `${precision}: ${whole(slowest)} samples/s in the slower fold; ${whole(theirSamplesPerSecond)} is to be beaten`,
    );
    for (const { fold, test } of one.results.folds) {
      const { accuracy, majority } = test;
      results.aim(
        accuracy > majority,
        `${precision} fold ${fold + 1}: ${percent(accuracy)} % right, the commonest class ${percent(majority)} %`,
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

/** Where a run is ended: in the first fold by a signal that it hears, in the last one by two that it does not. */
const cuts: readonly Cut[] = [
  { signal: "SIGTERM", afterMs: 10, isAt: (event) => event.kind === "epoch" && event.fold === 0 },
  { signal: "SIGKILL", afterMs: 20, isAt: (event) => event.kind === "epoch" && event.fold === folds - 1 },
  { signal: "SIGKILL", afterMs: 0, isAt: (event) => event.kind === "epoch" && event.fold === folds - 1 },
];

async function cutAndGoOn(results: Results, folder: string, precision: string): Promise<void> {
  const epochCount = count("cut-epochs", options["cut-epochs"]);
  // Features are not what is measured here: the runs share them.
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
      isFirst ? "begins" : `goes on from step ${told(process, "resumed")[0]?.step ?? "?"}`,
      cut?.signal ?? "",
      String(process.code ?? process.signal),
      String(told(process, "epoch").length),
      existsSync(join(parted, "checkpoints")) ? checkpointsOf(parted).last : "",
      seconds(process.wallMs),
    ]);
    console.log(rows.at(-1)?.join("  "));
  }
  results.table([["", "signal", "ended with", "epochs", "last checkpoint", "s"], ...rows]);
  const [own, other] = [checkpointsOf(parted), checkpointsOf(whole)];
  results.line(`sha256 of the last checkpoint's tensors: cut ${own.sha256}, whole ${other.sha256}`);
  results.line();
  results.aim(
    landed === cuts.length,
    `${precision}: ${landed} of ${cuts.length} signals ended the run before its end`,
  );
  results.aim(
    own.sha256 === other.sha256 && own.last === other.last,
    `${precision}: weights, moments and random numbers of the run that went on are ${own.sha256 === other.sha256 ? "" : "not "}those of the whole one, byte for byte (${own.last}, ${other.last})`,
  );
  const isEqual = measuredIn(parted) === measuredIn(whole);
  results.aim(
    isEqual,
    `${precision}: every epoch's loss and every test figure are ${isEqual ? "" : "not "}the same`,
  );
}

/** All figures that follow from the weights; times are not the same twice. */
function measuredIn(run: string): string {
  const { folds: found } = JSON.parse(
    readFileSync(join(run, "results.json"), "utf8"),
  ) as crossasset.JobResults;
  return JSON.stringify(
    found.map(({ test, perScale, epochs: records }) => [test, perScale, records.map(({ loss }) => loss)]),
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
        const one = await measure(folder, precision);
        measured.push(one);
        const { ofFolds, trainingMs } = figuresOf(one);
        const accuracies = one.results.folds.map(({ test }) => `${percent(test.accuracy)} %`);
        results.line(
          `${precision}: ${seconds(one.process.wallMs)} s, of them ${seconds(trainingMs)} in epochs; ${ofFolds.map(whole).join(" and ")} samples/s; ${accuracies.join(" and ")} right`,
        );
      });
    }
    results.line();
    const oracle: number[] = [];
    await results.attempt("the oracle", () => void oracle.push(...oracleOfFolds(samples, folds)));
    if (measured.length > 0) {
      await results.attempt("the table of times", () => tellSpeed(results, measured));
      await results.attempt("the table of accuracies", () => tellLearning(results, measured, oracle));
      requireBounds(results, measured);
    }
    const seeds = new Map<string, readonly Measured[]>([[String(crossasset.defaultSettings.seed), measured]]);
    for (const seed of options.seeds === "none" ? [] : options.seeds.split(",")) {
      const own: Measured[] = [];
      seeds.set(seed, own);
      for (const precision of options.precisions.split(","))
        await results.attempt(
          `${precision} of seed ${seed}`,
          async () => void own.push(await measure(folder, precision, seed)),
        );
    }
    await results.attempt("the table of seeds", () => tellSeeds(results, seeds));
    for (const precision of options.cut === "none" ? [] : options.cut.split(",")) {
      await results.attempt(`${precision}, ended and gone on`, () => cutAndGoOn(results, folder, precision));
    }
  } finally {
    results.finish();
    rmSync(folder, { recursive: true, force: true });
  }
}

await main();
