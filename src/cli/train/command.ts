/** `holdfast train crossasset`: its options. */

import { type Command, Option } from "commander";
import { defaultSettings } from "../../crossasset/index.js";
import { settingsTable } from "../../runtime/index.js";
import { duration, realNumber, size, wholeNumber } from "../options.js";
import { type TrainOptions, trainCrossAsset } from "./train-crossasset.js";

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
    .addOption(
      new Option("--width <number>", "the model's width, a multiple of 4 (default: 256)").argParser(
        wholeNumber(4),
      ),
    )
    .addOption(
      new Option("--layers <number>", "the model's attention layers (default: 2)").argParser(wholeNumber(1)),
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
    .action(async (options: TrainOptions) => end(await trainCrossAsset(options)));
}
