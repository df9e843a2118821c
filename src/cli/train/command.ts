/** `holdfast train crossasset`: its options, its output and its exit codes. */

import { join } from "node:path";
import { type Command, Option } from "commander";
import {
  checksumOfBars,
  defaultSettings,
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
import { hasDesktop, openBrowser } from "../desktop.js";
import { endOnStall } from "../end-on-stall.js";
import { duration, realNumber, size, wholeNumber } from "../options.js";
import { continueWithoutOutput, print } from "../output.js";
import { makeReporter, type ReporterName } from "./reporters.js";
import { summaryText } from "./summary.js";
import { type TensorBoardCurves, writeCurves } from "./tensorboard.js";

/** Options as commander passes them. */
interface CommandOptions
  extends Pick<JobSettings, "folds" | "epochs" | "batch" | "stride" | "seed" | "lr" | "dropout"> {
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

/** The number of generated bars: about 3,800 samples. */
const defaultBars = 236_000;

/** Adds the command. Its exit code is passed to `end`. */
export function addTrain(program: Command, end: (code: number) => void): void {
  const train = program.command("train").description("train a model that comes with Holdfast");
  const { folds, epochs, batch, stride, seed, lr, dropout } = defaultSettings;
  train
    .command("crossasset")
    .description("train CrossAsset on bars, in walk-forward folds; each fold is tested on later bars")
    .addOption(
      new Option("--device <device>", "the device to train on; auto uses a GPU if there is one")
        .choices(["auto", "cpu", "cuda"])
        .default("auto"),
    )
    .option("--bars <file>", "the bars to train on, .csv or .parquet (default: generated bars)")
    .addOption(
      new Option("--generate <bars>", "number of bars to generate if --bars is absent")
        .argParser(wholeNumber(1))
        .default(defaultBars),
    )
    .addOption(
      new Option("--folds <number>", "number of walk-forward folds").argParser(wholeNumber(1)).default(folds),
    )
    .addOption(new Option("--epochs <number>", "epochs per fold").argParser(wholeNumber(1)).default(epochs))
    .addOption(new Option("--batch <samples>", "samples per step").argParser(wholeNumber(1)).default(batch))
    .addOption(
      new Option("--stride <bars>", "bars between two samples").argParser(wholeNumber(1)).default(stride),
    )
    .addOption(
      new Option("--seed <number>", "the random seed; the same seed gives the same weights")
        .argParser(wholeNumber(0))
        .default(seed),
    )
    .addOption(
      new Option("--lr <rate>", "the learning rate")
        .argParser(realNumber((value) => value > 0 && Number.isFinite(value), "a number above 0"))
        .default(lr),
    )
    .addOption(
      new Option("--dropout <share>", "the dropout probability in training, from 0 to below 1")
        .argParser(realNumber((value) => value >= 0 && value < 1, "a number from 0 to below 1"))
        .default(dropout),
    )
    .option("--qk-norm", "normalise queries and keys to length 1 (QK norm)")
    .option("--shuffle-labels", "train on shuffled labels, as a check: the model must then learn nothing")
    .addOption(
      new Option(
        "--precision <precision>",
        "the precision of matrix products on a GPU (default: f32)",
      ).choices(settingsTable.precision.kind.split(" | ")),
    )
    .addOption(
      new Option(
        "--capture <mode>",
        "whether a compiled step runs as one CUDA graph (default: auto)",
      ).choices(["auto", "on", "off"]),
    )
    .addOption(
      new Option(
        "--memory <size>",
        "the memory budget, such as 64GiB (default: free memory minus a margin)",
      ).argParser(size),
    )
    .option(
      "--stall-after <time>",
      "max. time without progress in a phase, device call or file access, such as 30s; then the watchdog ends the run",
    )
    .addOption(
      new Option("--stop-within <time>", "max. time to end the process after Ctrl-C, SIGTERM or SIGHUP")
        .argParser(duration)
        .default(5000, "5s"),
    )
    .option("--cache <folder>", 'the folder to cache features in, or "off"', "off")
    .option(
      "--out <folder>",
      "the run's folder; if it holds an unfinished run, that run is resumed (default: runs/crossasset-TIME)",
    )
    .option("--resume", "fail if --out holds no run (default: resume a run or start a new one)")
    .option("--older-checkpoint", "resume from an earlier checkpoint if the latest is damaged")
    .addOption(
      new Option(
        "--metrics-port <port>",
        "serve /metrics for Prometheus, and /healthz, while the run trains",
      ).argParser(wholeNumber(1, 65_535)),
    )
    .option("--metrics-host <address>", "the address to serve metrics on (default: 127.0.0.1)")
    .option("--test-epochs", "also test after every epoch, for a curve; this does not change the weights")
    .option("--profile", "after each fold, measure the time of every call in a step, for `holdfast inspect`")
    .option("--ui", "serve the page of `holdfast inspect` while the run trains")
    .option("--tensorboard <folder>", "write the run's curves to this folder for TensorBoard")
    .option("--json", "print one JSON object per line and nothing else")
    .option("--quiet", "print nothing but errors")
    .action(async (options: CommandOptions) => end(await trainCrossAsset(options)));
}

async function trainCrossAsset(options: CommandOptions): Promise<number> {
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
  } = options;
  const settings: JobSettings = {
    ...{ folds, epochs, batch, stride, seed, lr, dropout, qkNorm, shuffledLabels },
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
      settings: { ...requested, ...(checksum !== undefined && { checksum }) },
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
}: CommandOptions): Promise<RunServer | undefined> {
  if (port !== undefined) return RunServer.listen({ port, host });
  if (host === undefined) return undefined;
  throw new HoldfastError("BAD_ARGUMENT", `--metrics-host ${host} needs a port. Add --metrics-port.`);
}

function deviceOptions(
  { precision, capture, memory, stallAfter, quiet }: CommandOptions,
  out: string,
): DeviceOptions {
  return {
    // Stall reports go to the run's folder; the environment variable takes precedence.
    ...(process.env[settingsTable.reports.variable] === undefined && { reports: out }),
    ...(precision && { precision }),
    ...(capture && { capture }),
    ...(memory !== undefined && { memory }),
    ...(stallAfter !== undefined && { stallAfter }),
    ...endOnStall(),
    ...(quiet && { print: () => undefined }),
  };
}
