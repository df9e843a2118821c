/** What all `holdfast train` commands do: the run folder, the device, signals, the output and the exit codes. */

import { join } from "node:path";
import { exitCodes, HoldfastError, toExitCode } from "../../errors/index.js";
import { type Inspector, openInspectorInThread } from "../../inspect/index.js";
import type { DataParallel, World } from "../../parallel/index.js";
import type { JsonRecord } from "../../records/index.js";
import { readSettings, settingsTable } from "../../runtime/index.js";
import { type Device, type DeviceOptions, device as openDevice } from "../../tensor/index.js";
import {
  type RejectedCheckpoint,
  RunServer,
  requireRunSettings,
  runFiles,
  stateOfRun,
  stopOnSignals,
} from "../../train/index.js";
import { systemClock } from "../../units/index.js";
import { commandDefaults } from "../command-defaults.js";
import { hasDesktop, openBrowser } from "../desktop.js";
import { continueWithoutOutput, print } from "../output.js";
import { openRanks, type Ranks, rankDeviceOptions } from "./ranks.js";
import { type EventText, makeReporter, type ReporterName } from "./reporters.js";
import { blasForRun, blasSetting } from "./run-blas.js";
import type { RunOptions } from "./run-options.js";
import { type CurvePoint, type TensorBoardCurves, writeCurves } from "./tensorboard.js";

/** A run folder that a job writes to. */
export interface OpenedRun<Results> {
  readonly resumed: { readonly rejected: readonly RejectedCheckpoint[] } | undefined;
  end(results: Results | undefined, exitCode: number): void;
  fail(error: unknown, exitCode: number): void;
}

/** The options of a run's folder. */
export interface RunPlace {
  readonly path: string;
  readonly settings: JsonRecord;
  /** The device's name. */
  readonly device: string;
  readonly allowOlder: boolean;
  readonly recordedDevice: Device;
  /** Undefined for one process. */
  readonly world: World | undefined;
}

/** A job with its data, on a device. */
export interface PreparedJob<Event, Run, Results> {
  /** Settings that follow from the data. */
  readonly settings: JsonRecord;
  openRun(place: RunPlace): Run;
  /** Trains, or continues. Returns undefined if the signal ended it. */
  train(context: TrainContext<Event, Run>): Promise<Results | undefined>;
}

export interface TrainContext<Event, Run> {
  readonly run: Run;
  readonly listen: (event: Event) => void;
  readonly signal: AbortSignal;
  /** Undefined for one process without shards. */
  readonly parallel: DataParallel | undefined;
}

/** The job of a command. */
export interface CommandJob<Event, Run, Results> {
  /** The beginning of a new run folder's name. */
  readonly name: string;
  /** The settings of the command line. A run is only resumed with the same settings. */
  readonly settings: JsonRecord;
  readonly describe: (event: Event) => EventText;
  readonly curveOf: (event: Event) => CurvePoint | undefined;
  readonly summaryText: (results: Results, out: string) => string;
  /** Reads the data; then the device is opened and passed to the returned function. */
  readonly load: () => Promise<
    (
      device: Device,
      out: string,
    ) => PreparedJob<Event, Run, Results> | Promise<PreparedJob<Event, Run, Results>>
  >;
}

/** Trains in a run folder and prints the progress. Returns the exit code. Of several ranks, rank 0 prints and writes the run. */
export async function trainInRun<Event, Run extends OpenedRun<Results>, Results>(
  options: RunOptions,
  job: CommandJob<Event, Run, Results>,
): Promise<number> {
  const ranks = openRanks(options);
  try {
    const exitCode = await trainOnRank(options, job, ranks);
    ranks?.world.close();
    return exitCode;
  } catch (error) {
    ranks?.world.fail(error);
    throw error;
  }
}

async function trainOnRank<Event, Run extends OpenedRun<Results>, Results>(
  options: RunOptions,
  job: CommandJob<Event, Run, Results>,
  ranks: Ranks | undefined,
): Promise<number> {
  const isFirst = (ranks?.world.rank ?? 0) === 0;
  const { json = false, quiet = !isFirst } = options;
  const name: ReporterName = quiet ? "quiet" : json ? "json" : process.stdout.isTTY ? "live" : "plain";
  const isText = name === "live" || name === "plain";
  // A closed pipe or a full disk ends the display, not the training.
  continueWithoutOutput();
  const columns = process.stdout.columns ?? 120;
  const reporter = makeReporter(name, { write: print, clock: systemClock, columns }, job.describe);
  // Rank 0's, whose clock may show another second.
  const ownPath = options.out ?? newRunPath(job.name);
  const out = ranks?.world.exchange("the run's folder", ownPath)[0] ?? ownPath;
  // The environment variable has the same effect as the option.
  const { precision } = readSettings({ ...(options.precision && { precision: options.precision }) });
  const { parallel } = ranks ?? {};
  const requested = { ...job.settings, precision, ...(parallel && { shards: parallel.shards }) };
  // First, so that a mistake is reported at once.
  requireRunSettings(out, requested);
  const state = stateOfRun(out);
  if (state === "finished") {
    if (name === "json") print(`${JSON.stringify({ kind: "finished before", run: out })}\n`);
    else if (name !== "quiet") print(finishedText(out));
    return exitCodes.ok.code;
  }
  if (state === "diverged") throw divergedBefore(out);
  if (options.resume && state === "none") throw nothingToResume(out);
  const server = isFirst ? await openServer(options) : undefined;
  let device: Device | undefined;
  let stop: ReturnType<typeof stopOnSignals> | undefined;
  let run: Run | undefined;
  let inspector: Inspector | undefined;
  let curves: TensorBoardCurves | undefined;
  try {
    if (server && isText) print(`metrics  ${server.url}/metrics\n`);
    const prepare = await job.load();
    device = await openDevice(options.device, {
      ...deviceOptions(options, out, isFirst),
      ...(ranks && rankDeviceOptions(ranks, options)),
    });
    stop = stopOnSignals({ withinMs: options.stopWithin, exitCode: exitCodes.stopped.code });
    await stop.ready;
    const prepared = await prepare(device, out);
    run = prepared.openRun({
      path: out,
      settings: { ...requested, ...prepared.settings, ...blasSetting(device.runtime) },
      device: device.runtime.device.name,
      ...{ allowOlder: options.olderCheckpoint === true, recordedDevice: device, world: ranks?.world },
    });
    if (isFirst) stop.markRun(out);
    server?.show(out);
    const { tensorboard } = options;
    curves = tensorboard === undefined || !isFirst ? undefined : writeCurves(tensorboard, out);
    inspector = options.ui && isFirst ? await openInspectorInThread({ root: out }) : undefined;
    if (inspector) {
      if (isText) print(`inspect  ${inspector.url}\n`);
      else console.error(inspector.url);
      if (hasDesktop()) openBrowser(inspector.url);
    }
    const listen = (event: Event): void => {
      curves?.add(job.curveOf(event));
      reporter.listen(event);
    };
    for (const { name: skipped, reason } of run.resumed?.rejected ?? [])
      console.error(`holdfast: skipped checkpoint ${skipped}: ${reason}`);
    const results = await prepared.train({ run, listen, signal: stop.signal, parallel });
    reporter.end();
    const exitCode = (results ? exitCodes.ok : exitCodes.stopped).code;
    run.end(results, exitCode);
    if (isText) print(results ? `\n${job.summaryText(results, out)}\n${finalText(out)}` : stoppedText(out));
    return exitCode;
  } catch (error) {
    reporter.end();
    run?.fail(error, toExitCode(error));
    throw error;
  } finally {
    curves?.close();
    await inspector?.close();
    device?.close();
    server?.close();
    stop?.close();
  }
}

/** Below the current folder, named by the time. */
function newRunPath(name: string): string {
  const time = new Date().toISOString().slice(0, 19).replaceAll(/[-:]/g, "").replace("T", "-");
  return join("runs", `${name}-${time}`);
}

function finalText(out: string): string {
  return `The run is in ${out}. To inspect it: holdfast inspect ${out}\n`;
}

function stoppedText(out: string): string {
  return `Stopped. The run is in ${out}. To resume it, run the same command with --out ${out}.\n`;
}

function finishedText(out: string): string {
  return `The run in ${out} is already finished. Its results are in ${join(out, runFiles.results)}. To train again, use another --out.\n`;
}

function divergedBefore(out: string): HoldfastError {
  return new HoldfastError(
    "DIVERGED",
    `The run in ${out} diverged, and resuming it would not help. Start a new run with a smaller --lr and another --out.`,
  );
}

function nothingToResume(out: string): HoldfastError {
  return new HoldfastError(
    "BAD_ARGUMENT",
    `${out} holds no run to resume. Omit --resume to start a run there.`,
  );
}

/** Opened first, so that an occupied port is reported at once. */
async function openServer({
  metricsPort: port,
  metricsHost: host,
}: RunOptions): Promise<RunServer | undefined> {
  if (port !== undefined) return RunServer.listen({ port, host });
  if (host === undefined) return undefined;
  throw new HoldfastError("BAD_ARGUMENT", `--metrics-host ${host} needs a port. Add --metrics-port.`);
}

function deviceOptions(
  { precision, capture, memory, stallAfter, quiet }: RunOptions,
  out: string,
  isFirst: boolean,
): DeviceOptions {
  return {
    // Stall reports go to the run's folder; the environment variable takes precedence.
    ...(process.env[settingsTable.reports.variable] === undefined && { reports: out }),
    ...(precision && { precision }),
    ...(capture && { capture }),
    ...(memory !== undefined && { memory }),
    ...(stallAfter !== undefined && { stallAfter }),
    ...commandDefaults(),
    ...blasForRun(out),
    ...((quiet || !isFirst) && { print: () => undefined }),
  };
}
