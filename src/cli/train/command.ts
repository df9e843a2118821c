/** `holdfast train crossasset` as a command: its options, how it is told, and how it ends. */

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
  runJob,
  stateOfRun,
} from "../../crossasset/index.js";
import { exitCodes, HoldfastError } from "../../errors/index.js";
import { type Inspector, openInspectorAside } from "../../inspect/index.js";
import { settingsTable } from "../../runtime/index.js";
import { type DeviceOptions, device as openDevice } from "../../tensor/index.js";
import { RunServer } from "../../train/index.js";
import { type Bytes, systemClock } from "../../units/index.js";
import { hasDesktop, openBrowser } from "../desktop.js";
import { realNumber, size, wholeNumber } from "../options.js";
import { makeReporter, type ReporterName } from "./reporters.js";
import { summaryText } from "./summary.js";
import { type TensorBoardCurves, writeCurves } from "./tensorboard.js";

/** Options as commander gives them. */
interface GivenOptions
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

/** As many bars as the job makes for itself where it is given none: some 3,800 samples. */
const usualBars = 236_000;

/** Adds the command; `end` is told its exit code. */
export function addTrain(program: Command, end: (code: number) => void): void {
  const train = program.command("train").description("train a model that Holdfast brings along");
  const { folds, epochs, batch, stride, seed, lr, dropout } = defaultSettings;
  train
    .command("crossasset")
    .description("train CrossAsset fold by fold on bars of a market, and test it on the time behind each")
    .addOption(
      new Option("--device <device>", "what to train on; auto is a GPU where there is one")
        .choices(["auto", "cpu", "cuda"])
        .default("auto"),
    )
    .option("--bars <file>", "bars as .csv or .parquet; made from the seed unless given")
    .addOption(
      new Option("--generate <bars>", "how many bars are made where no file is given")
        .argParser(wholeNumber(1))
        .default(usualBars),
    )
    .addOption(new Option("--folds <number>", "walk-forward folds").argParser(wholeNumber(1)).default(folds))
    .addOption(new Option("--epochs <number>", "epochs of a fold").argParser(wholeNumber(1)).default(epochs))
    .addOption(new Option("--batch <samples>", "samples in a step").argParser(wholeNumber(1)).default(batch))
    .addOption(
      new Option("--stride <bars>", "bars from sample to sample").argParser(wholeNumber(1)).default(stride),
    )
    .addOption(
      new Option("--seed <number>", "what everything random follows from")
        .argParser(wholeNumber(0))
        .default(seed),
    )
    .addOption(
      new Option("--lr <rate>", "the learning rate")
        .argParser(realNumber((value) => value > 0 && Number.isFinite(value), "a number above 0"))
        .default(lr),
    )
    .addOption(
      new Option("--dropout <share>", "of values dropped in training")
        .argParser(realNumber((value) => value >= 0 && value < 1, "a number from 0 to below 1"))
        .default(dropout),
    )
    .option("--qk-norm", "bring queries and keys to length one")
    .option("--shuffle-labels", "train on labels of other samples: a model can't learn then, and should not")
    .addOption(
      new Option("--precision <precision>", "of products on a GPU").choices(
        settingsTable.precision.kind.split(" | "),
      ),
    )
    .addOption(new Option("--capture <mode>", "steps as graphs").choices(["auto", "on", "off"]))
    .addOption(new Option("--memory <size>", "the budget, such as 64GiB").argParser(size))
    .option("--stall-after <time>", "how long a call may stand still, such as 30s")
    .option("--cache <folder>", 'where features are kept between runs, or "off"', "off")
    .option(
      "--out <folder>",
      "where the run is kept: settings, figures, checkpoints (runs/crossasset-… unless given)",
    )
    .option("--resume", "go on with the run in --out; a run that was cut off is gone on with anyway")
    .option("--older-checkpoint", "go on from an earlier checkpoint where the latest is damaged")
    .addOption(
      new Option(
        "--metrics-port <port>",
        "serve /metrics for Prometheus and /healthz while the run goes on",
      ).argParser(wholeNumber(1, 65_535)),
    )
    .option("--metrics-host <address>", "where to listen for that (127.0.0.1 unless given)")
    .option("--test-epochs", "test behind every epoch too, for a curve; nothing is chosen by it")
    .option("--profile", "measure what each call of a step takes, behind each fold, for `holdfast inspect`")
    .option("--ui", "show the run on a page of this machine while it goes on, as `holdfast inspect` does")
    .option("--tensorboard <folder>", "write the run's curves there for TensorBoard, as they come")
    .option("--json", "a JSON object a line on stdout, and nothing else")
    .option("--quiet", "nothing but errors")
    .action(async (options: GivenOptions) => end(await trainCrossAsset(options)));
}

async function trainCrossAsset(given: GivenOptions): Promise<number> {
  const { bars: file, generate, seed, json = false, quiet = false, cache } = given;
  const name: ReporterName = quiet ? "quiet" : json ? "json" : process.stdout.isTTY ? "live" : "plain";
  const write = (text: string): void => void process.stdout.write(text);
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
  } = given;
  const settings: JobSettings = {
    ...{ folds, epochs, batch, stride, seed, lr, dropout, qkNorm, shuffledLabels },
  };
  const out = given.out ?? newRunPath();
  if (stateOfRun(out) === "finished") {
    if (!given.resume) throw isFinished(out);
    write(`${out} has ended already; results.json there has its figures.\n`);
    return exitCodes.ok.code;
  }
  if (given.resume && stateOfRun(out) === "none") throw nothingToResume(out);
  const server = await openServer(given);
  if (server && (name === "live" || name === "plain")) write(`metrics  ${server.url}/metrics\n`);
  const bars = file === undefined ? generateBars({ bars: generate, seed }) : await readBars(file);
  const device = await openDevice(given.device, deviceOptions(given, out));
  const halt = haltOnSignals();
  let run: JobRun | undefined;
  let inspector: Inspector | undefined;
  let curves: TensorBoardCurves | undefined;
  try {
    const asked = {
      ...settings,
      ...(file === undefined ? { generate } : { bars: file, checksum: checksumOfBars(bars).slice(0, 16) }),
      precision: given.precision ?? "f32",
    };
    run = openJobRun({
      ...{ path: out, settings: asked, device: device.runtime.device.name },
      ...{ allowOlder: given.olderCheckpoint === true, runtime: device.runtime },
    });
    server?.show(out);
    curves = given.tensorboard === undefined ? undefined : writeCurves(given.tensorboard, out);
    inspector = given.ui ? await openInspectorAside({ root: out }) : undefined;
    if (inspector) {
      if (name === "live" || name === "plain") write(`inspect  ${inspector.url}\n`);
      else console.error(inspector.url);
      if (hasDesktop()) openBrowser(inspector.url);
    }
    const listen: JobListener = (event) => {
      curves?.listen(event);
      reporter.listen(event);
    };
    for (const { name: passed, reason } of run.resumed?.refused ?? [])
      console.error(`holdfast: passed over ${passed}: ${reason}`);
    const results = await runJob({
      ...{ device, settings, bars, source: file ?? `the generator, seed ${seed}`, run },
      ...{ cacheFolder: cache, listen, signal: halt.signal },
      ...(given.profile && { profile: true }),
      ...(given.testEpochs && { testsEpochs: true }),
    });
    reporter.end();
    const exitCode = (results ? exitCodes.ok : exitCodes.stopped).code;
    run.end(results, exitCode);
    if (name === "live" || name === "plain")
      write(results ? `\n${summaryText(results)}\n${out}\n` : stoppedText(out));
    return exitCode;
  } catch (error) {
    reporter.end();
    run?.fail(error, exitCodes.failed.code);
    throw error;
  } finally {
    halt.forget();
    curves?.close();
    await inspector?.close();
    device.close();
    server?.close();
  }
}

/** In the present folder, by the time. */
function newRunPath(): string {
  return join(
    "runs",
    `crossasset-${new Date().toISOString().slice(0, 19).replaceAll(/[-:]/g, "").replace("T", "-")}`,
  );
}

function stoppedText(out: string): string {
  return `stopped; the same command goes on from the checkpoint in ${out}\n`;
}

function isFinished(out: string): HoldfastError {
  return new HoldfastError(
    "BAD_ARGUMENT",
    `The run in ${out} has ended. Give another --out, or look at its results.json.`,
  );
}

function nothingToResume(out: string): HoldfastError {
  return new HoldfastError(
    "BAD_ARGUMENT",
    `${out} holds no run that could be resumed. Leave --resume out to start one there.`,
  );
}

/** Before anything else is begun, so that a port that is taken is told at once. */
async function openServer({
  metricsPort: port,
  metricsHost: host,
}: GivenOptions): Promise<RunServer | undefined> {
  if (port !== undefined) return RunServer.listen({ port, host });
  if (host === undefined) return undefined;
  throw new HoldfastError(
    "BAD_ARGUMENT",
    `--metrics-host ${host} has no port to go with. Give --metrics-port too.`,
  );
}

function deviceOptions({ precision, capture, memory, stallAfter }: GivenOptions, out: string): DeviceOptions {
  return {
    // A stall is told where the run is kept, unless another place is asked for.
    ...(process.env[settingsTable.reports.variable] === undefined && { reports: out }),
    ...(precision && { precision }),
    ...(capture && { capture }),
    ...(memory !== undefined && { memory }),
    ...(stallAfter !== undefined && { stallAfter }),
    print: () => undefined,
  };
}

/** The first Ctrl-C or SIGTERM ends the job after the present step; a second one ends the process at once. */
function haltOnSignals(): { readonly signal: AbortSignal; forget(): void } {
  const halt = new AbortController();
  const names = ["SIGINT", "SIGTERM"] as const;
  const end = (): void => {
    forget();
    halt.abort();
  };
  const forget = (): void => {
    for (const name of names) process.off(name, end);
  };
  for (const name of names) process.on(name, end);
  return { signal: halt.signal, forget };
}
