/** Trains CrossAsset for the command line: the run folder, the device, the output and the exit codes. */

import { join } from "node:path";
import {
  checksumOfBars,
  generateBars,
  type JobListener,
  type JobRun,
  type JobSettings,
  openJobRun,
  readBars,
  requireRunSettings,
  runJob,
  stateOfRun,
} from "../../crossasset/index.js";
import { makeFolder } from "../../data/index.js";
import { exitCodes, HoldfastError, toExitCode } from "../../errors/index.js";
import { type Inspector, openInspectorInThread } from "../../inspect/index.js";
import { readSettings, settingsTable } from "../../runtime/index.js";
import { type DeviceOptions, device as openDevice } from "../../tensor/index.js";
import { RunServer, runFiles, stopOnSignals } from "../../train/index.js";
import { type Bytes, systemClock } from "../../units/index.js";
import { commandDefaults } from "../command-defaults.js";
import { hasDesktop, openBrowser } from "../desktop.js";
import { continueWithoutOutput, print } from "../output.js";
import { makeReporter, type ReporterName } from "./reporters.js";
import { blasForRun, blasSetting } from "./run-blas.js";
import { summaryText } from "./summary.js";
import { type TensorBoardCurves, writeCurves } from "./tensorboard.js";

/** Options as commander passes them. */
export interface TrainOptions
  extends Pick<
    JobSettings,
    "folds" | "epochs" | "batch" | "stride" | "seed" | "lr" | "dropout" | "width" | "layers"
  > {
  readonly device: "auto" | "cpu" | "cuda";
  readonly bars?: string;
  readonly generate: number;
  readonly qkNorm?: boolean;
  readonly shuffleLabels?: boolean;
  readonly precision?: "f32" | "tf32" | "bf16";
  readonly capture?: "auto" | "on" | "off";
  readonly memory?: Bytes;
  readonly stallAfter?: string;
  readonly stopWithin: number;
  readonly cache: string;
  readonly out?: string;
  readonly resume?: boolean;
  readonly olderCheckpoint?: boolean;
  readonly metricsPort?: number;
  readonly metricsHost?: string;
  readonly profile?: boolean;
  readonly testEpochs?: boolean;
  readonly ui?: boolean;
  readonly tensorboard?: string;
  readonly json?: boolean;
  readonly quiet?: boolean;
}

/** Trains CrossAsset in a run folder and prints its progress. Returns the exit code. */
export async function trainCrossAsset(options: TrainOptions): Promise<number> {
  const { bars: file, generate, seed, json = false, quiet = false, cache } = options;
  const name: ReporterName = quiet ? "quiet" : json ? "json" : process.stdout.isTTY ? "live" : "plain";
  // A closed pipe or a full disk ends the display, not the training.
  continueWithoutOutput();
  const write = print;
  const reporter = makeReporter(name, { write, clock: systemClock, columns: process.stdout.columns ?? 120 });
  const {
    folds,
    epochs,
    batch,
    stride,
    lr,
    dropout,
    qkNorm = false,
    shuffleLabels: shuffledLabels = false,
    width,
    layers,
  } = options;
  const settings: JobSettings = {
    ...{ folds, epochs, batch, stride, seed, lr, dropout, qkNorm, shuffledLabels },
    // Only named sizes are recorded: runs of earlier versions have none.
    ...(width !== undefined && { width }),
    ...(layers !== undefined && { layers }),
  };
  const out = options.out ?? newRunPath();
  const requested = {
    ...settings,
    ...(file === undefined ? { generate } : { bars: file }),
    // The environment variable has the same effect as the option.
    precision: readSettings({ ...(options.precision && { precision: options.precision }) }).precision,
  };
  // First, so that a mistake is reported at once.
  requireRunSettings(out, requested);
  const state = stateOfRun(out);
  if (state === "finished") {
    if (name === "json") write(`${JSON.stringify({ kind: "finished before", run: out })}\n`);
    else if (name !== "quiet") write(finishedText(out));
    return exitCodes.ok.code;
  }
  if (state === "diverged") throw divergedBefore(out);
  if (options.resume && state === "none") throw nothingToResume(out);
  if (cache !== "off") makeFolder(cache);
  const server = await openServer(options);
  if (server && (name === "live" || name === "plain")) write(`metrics  ${server.url}/metrics\n`);
  const bars = file === undefined ? generateBars({ bars: generate, seed }) : await readBars(file);
  const device = await openDevice(options.device, deviceOptions(options, out));
  const stop = stopOnSignals({ withinMs: options.stopWithin, exitCode: exitCodes.stopped.code });
  await stop.ready;
  let run: JobRun | undefined;
  let inspector: Inspector | undefined;
  let curves: TensorBoardCurves | undefined;
  try {
    const checksum = file === undefined ? undefined : checksumOfBars(bars).slice(0, 16);
    run = openJobRun({
      path: out,
      settings: {
        ...requested,
        ...(checksum !== undefined && { checksum }),
        ...blasSetting(device.runtime),
      },
      device: device.runtime.device.name,
      ...{ allowOlder: options.olderCheckpoint === true, recordedDevice: device },
    });
    stop.markRun(out);
    server?.show(out);
    curves = options.tensorboard === undefined ? undefined : writeCurves(options.tensorboard, out);
    inspector = options.ui ? await openInspectorInThread({ root: out }) : undefined;
    if (inspector) {
      if (name === "live" || name === "plain") write(`inspect  ${inspector.url}\n`);
      else console.error(inspector.url);
      if (hasDesktop()) openBrowser(inspector.url);
    }
    const listen: JobListener = (event) => {
      curves?.listen(event);
      reporter.listen(event);
    };
    for (const { name: skipped, reason } of run.resumed?.rejected ?? [])
      console.error(`holdfast: skipped checkpoint ${skipped}: ${reason}`);
    const results = await runJob({
      ...{ device, settings, bars, source: file ?? `the generator, seed ${seed}`, run },
      ...{ cacheFolder: cache, listen, signal: stop.signal },
      ...(options.profile && { profile: true }),
      ...(options.testEpochs && { testsEpochs: true }),
    });
    reporter.end();
    const exitCode = (results ? exitCodes.ok : exitCodes.stopped).code;
    run.end(results, exitCode);
    if (name === "live" || name === "plain")
      write(results ? `\n${summaryText(results)}\n${finalText(out)}` : stoppedText(out));
    return exitCode;
  } catch (error) {
    reporter.end();
    run?.fail(error, toExitCode(error));
    throw error;
  } finally {
    curves?.close();
    await inspector?.close();
    device.close();
    server?.close();
    stop.close();
  }
}

/** Below the current folder, named by the time. */
function newRunPath(): string {
  return join(
    "runs",
    `crossasset-${new Date().toISOString().slice(0, 19).replaceAll(/[-:]/g, "").replace("T", "-")}`,
  );
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
}: TrainOptions): Promise<RunServer | undefined> {
  if (port !== undefined) return RunServer.listen({ port, host });
  if (host === undefined) return undefined;
  throw new HoldfastError("BAD_ARGUMENT", `--metrics-host ${host} needs a port. Add --metrics-port.`);
}

function deviceOptions(
  { precision, capture, memory, stallAfter, quiet }: TrainOptions,
  out: string,
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
    ...(quiet && { print: () => undefined }),
  };
}
