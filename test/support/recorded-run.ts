/**
 * A small training like `holdfast train`, for tests that disturb it: bars from a file, a run's folder with checkpoints and all
 * records, a stop and a resume, curves, metrics over HTTP; then its model is evaluated and its folder inspected. The model is tiny, so
 * that everything takes a fraction of a second.
 */

import { readFileSync } from "node:fs";
import { join } from "node:path";
import { crossasset, manualSeed, nn, device as openDevice, optim, TensorDataset, Trainer } from "holdfast";
import { writeCurves } from "../../src/cli/train/tensorboard.js";
import { curveOf } from "../../src/cli/train/train-crossasset.js";
import { normaliserFrom, sampleWidth } from "../../src/crossasset/samples/index.js";
import { exitCodes, toExitCode } from "../../src/errors/index.js";
import {
  exportTensorBoard,
  openInspector,
  openInspectorInThread,
  viewAsText,
} from "../../src/inspect/index.js";
import { stepColumns } from "../../src/records/index.js";
import {
  CheckpointStore,
  type EpochRecord,
  inspectionFiles,
  RunServer,
  readRun,
  readSteps,
  restoreState,
  runFiles,
  stopOnSignals,
} from "../../src/train/index.js";
import { tensorsIn } from "./crossasset-runs.js";

export const epochs = 3;
const [rows, batchSize] = [8, 4];
export const stepsInAll = (epochs * rows) / batchSize;
const settings = { epochs, batchSize, seed: 5 };
const normaliser = normaliserFrom({
  mean: new Float32Array(sampleWidth),
  deviation: new Float32Array(sampleWidth).fill(1),
});

/** The end of a command: its exit code and its printed error. */
export interface Ended {
  readonly exitCode: number;
  readonly error?: unknown;
}

export interface TrainOptions {
  /** The file from `writeRunBars`. */
  readonly bars: string;
  /** The run's folder. */
  readonly out: string;
  /** Send a signal after this many epochs. */
  readonly stopAfter?: number | undefined;
  /** Start the threads of a real command: the watchdog, the signal listener, the inspector. */
  readonly hasThreads?: boolean | undefined;
  /** The folder for curves. */
  readonly curves?: string | undefined;
}

export async function writeRunBars(path: string): Promise<void> {
  await crossasset.writeBars(path, crossasset.generateBars({ bars: 4 * rows, seed: 3 }));
}

/** Starts or resumes the training like the command: the same steps in the same order. */
export function trainRun(options: TrainOptions): Promise<Ended> {
  return ended(() => train(options));
}

async function train({
  bars: file,
  out,
  stopAfter,
  hasThreads = false,
  curves: curvesFolder,
}: TrainOptions): Promise<number> {
  crossasset.requireRunSettings(out, settings);
  if (crossasset.stateOfRun(out) === "finished") return exitCodes.ok.code;
  const server = hasThreads ? await RunServer.listen({ port: 0 }) : undefined;
  const { close } = await crossasset.readBars(file);
  const device = await openDevice("cpu", {
    ...{ reports: out, threads: 1, memory: "64MiB", arena: "16MiB", staging: "1MiB" },
    ...{ stallAfter: hasThreads ? "30s" : "off", print: () => undefined },
  });
  const stop = hasThreads ? stopOnSignals() : undefined;
  await stop?.ready;
  const halt = new AbortController();
  let run: crossasset.JobRun | undefined;
  let inspector: Awaited<ReturnType<typeof openInspectorInThread>> | undefined;
  let curves: ReturnType<typeof writeCurves> | undefined;
  try {
    run = crossasset.openJobRun({ path: out, settings, device: "CPU", recordedDevice: device });
    stop?.markRun(out);
    server?.show(out);
    curves = curvesFolder === undefined ? undefined : writeCurves(curvesFolder, out);
    inspector = hasThreads ? await openInspectorInThread({ root: out }) : undefined;
    const results = await trainTiny(
      device,
      run,
      close,
      halt,
      (event) => curves?.add(curveOf(event)),
      stopAfter,
    );
    const exitCode = (results ? exitCodes.ok : exitCodes.stopped).code;
    run.end(results, exitCode);
    return exitCode;
  } catch (error) {
    run?.fail(error, toExitCode(error));
    throw error;
  } finally {
    curves?.close();
    await inspector?.close();
    device.close();
    server?.close();
    stop?.close();
  }
}

async function trainTiny(
  device: Awaited<ReturnType<typeof openDevice>>,
  run: crossasset.JobRun,
  close: Float64Array,
  halt: AbortController,
  draw: crossasset.JobListener,
  stopAfter: number | undefined,
): Promise<crossasset.JobResults | undefined> {
  const listen: crossasset.JobListener = (event) => {
    run.note(event);
    draw(event);
  };
  listen({ kind: "device", name: "CPU", budgetBytes: device.runtime.budget.limit });
  listen({ kind: "phase", phase: "preparing features" });
  manualSeed(settings.seed);
  const model = makeModel().to(device);
  const { resumed } = run;
  const optimizer = new optim.AdamW(model.parameters(), { lr: 0.01 });
  const done: EpochRecord[] = [...(resumed?.epochs ?? [])];
  const foldPosition = { fold: 0, folds: 1, epochs };
  const data = dataOf(close);
  const trainer = new Trainer({
    ...{ device, model, optimizer, data, batchSize, epochs, seed: settings.seed, clipNorm: 1 },
    ...{ signal: halt.signal, watcher: run.watch(0, 0) },
    ...(resumed && { from: resumed.position }),
    loss: (x, y) => model.forward(x).sub(y).square().mean(),
    onStep: ({ progress: { epoch, batch, step }, batches, latestLoss: loss, samplesPerSecond }) =>
      listen({
        ...{ kind: "step", ...foldPosition, epoch, batch, batches, step, steps: stepsInAll, loss },
        ...{ samples: batchSize * step, samplesPerSecond, usedBytes: 1, secondsLeft: 1 },
      }),
    onEpoch: (record) => {
      done.push(record);
      const { step } = trainer.progress;
      listen({ kind: "epoch", ...foldPosition, epoch: record.epoch, step, record, secondsLeft: 1 });
      save();
      if (record.epoch + 1 === stopAfter) halt.abort();
    },
  });
  // The real model and training have more members; only these are used.
  const training = {
    optimizer,
    normaliser,
    epochs: done,
    get position() {
      return trainer.position;
    },
  } as unknown as Parameters<typeof run.save>[3];
  const asJob = model as unknown as crossasset.CrossAsset;
  const save = (): void => {
    const file = run.save(trainer.progress.step, 0, asJob, training, []);
    listen({ kind: "checkpoint", step: trainer.progress.step, file: file ?? "none" });
  };
  resumed?.restore(asJob, training);
  listen({ kind: "phase", phase: "compiling" });
  try {
    if ((await trainer.run()).state === "stopped") {
      save();
      return undefined;
    }
  } finally {
    trainer.close();
    data.release(device);
    optimizer.release();
  }
  const test = { loss: done.at(-1)?.loss ?? Number.NaN, accuracy: 1, majority: 1, confusion: [[1]] };
  const result = { fold: 0, trainSamples: rows, testSamples: rows, epochs: done, test, perScale: [] };
  listen({ kind: "fold end", step: stepsInAll, result });
  const results = { folds: [result], wf_mean: 1, majority_mean: 1 };
  listen({ kind: "end", results });
  return results;
}

/** With dropout, so that the state includes random numbers. */
function makeModel() {
  return new nn.Sequential(new nn.Dropout(0.2), new nn.Linear(3, 1));
}

function dataOf(close: Float64Array) {
  const points = Array.from({ length: rows }, (_, row) =>
    [0, 1, 2].map((at) => (close[row + at] ?? 0) / 1e5),
  );
  return new TensorDataset(
    points,
    points.map(([a = 0, b = 0, c = 0]) => [a - b * c]),
  );
}

/** Loads and evaluates the run's model, like `holdfast eval`. */
export function evaluateRun(out: string, bars: string): Promise<Ended> {
  return ended(async () => {
    const { close } = await crossasset.readBars(bars);
    const device = await openDevice("cpu", {
      threads: 1,
      memory: "64MiB",
      arena: "16MiB",
      stallAfter: "off",
    });
    try {
      const model = makeModel().to(device);
      const optimizer = new optim.AdamW(model.parameters(), { lr: 0.01 });
      restoreState(new CheckpointStore(join(out, runFiles.checkpoints)).load("latest"), model, optimizer);
      const data = dataOf(close);
      if (data.rows !== rows) throw new Error(`${data.rows} rows`);
      return exitCodes.ok.code;
    } finally {
      device.close();
    }
  });
}

/** All inspector addresses that read a run's folder. */
const addresses = (name: string): readonly string[] => [
  ...["/", "/api/runs"],
  ...["", "/steps", "/memory", "/phases", "/plans/0"].map((what) => `/api/runs/${name}${what}`),
  ...["steps.csv", "metrics.csv", "trace.json", "memory-0.pickle"].map(
    (what) => `/api/runs/${name}/export/${what}`,
  ),
];

/** Reads the run through every address, like `holdfast inspect`. A 503 with a message is an answer; a broken connection is not. */
export function inspectRun(out: string, name: string, curves: string): Promise<Ended> {
  return ended(async () => {
    const inspector = await openInspector({ root: out });
    try {
      for (const address of addresses(name)) {
        const { status } = await fetch(new URL(address, inspector.url));
        if (status !== 200 && status !== 503 && status !== 404) throw new Error(`${address}: ${status}`);
      }
    } finally {
      await inspector.close();
    }
    viewAsText(out).print({ columns: 80 });
    exportTensorBoard(out, curves);
    return exitCodes.ok.code;
  });
}

/** The time-independent results of a run: weights, moments, results, metrics, every step. */
export function endOf(out: string): string {
  const { metrics, results, messages, status } = readRun(out);
  const { folds } = results as unknown as crossasset.JobResults;
  const steps = readSteps(join(out, inspectionFiles.steps));
  const timeless = stepColumns.filter((column) => column !== "time" && column !== "hostMs");
  return JSON.stringify({
    ...{ state: status?.state, messages, weights: Buffer.from(tensorsIn(out), "latin1").toString("base64") },
    losses: folds.map(({ epochs: ended }) => ended.map(({ epoch, loss, lr }) => [epoch, loss, lr])),
    metrics: metrics.map(({ step, epoch, loss, test }) => [step, epoch, loss, test]),
    steps: timeless.map((column) => [column, ...steps[column]]),
  });
}

/** Simulates the lock of an ended process with an unused PID, because the test's process is still alive. */
export function textOfDeadLock(path: string): string {
  return readFileSync(path, "utf8").replace(/"pid":\d+/, '"pid":4194305');
}

async function ended(command: () => Promise<number>): Promise<Ended> {
  try {
    return { exitCode: await command() };
  } catch (error) {
    return { exitCode: toExitCode(error), error };
  }
}
