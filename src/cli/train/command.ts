/** `holdfast train`: its commands, and the options of `holdfast train crossasset`. */

import { type Command, Option } from "commander";
import { defaultSettings } from "../../crossasset/index.js";
import { realNumber, wholeNumber } from "../options.js";
import { addTrainLm } from "./lm/command.js";
import { addRunOptions } from "./run-options.js";
import { type TrainOptions, trainCrossAsset } from "./train-crossasset.js";

/** The number of generated bars: about 3,800 samples. */
const defaultBars = 236_000;

/** Adds the commands. Their exit code is passed to `end`. */
export function addTrain(program: Command, end: (code: number) => void): void {
  const train = program.command("train").description("train a language model, or the example application");
  addTrainLm(train, end);
  addTrainCrossAsset(train, end);
}

function addTrainCrossAsset(train: Command, end: (code: number) => void): void {
  const { folds, epochs, batch, stride, seed, lr, dropout } = defaultSettings;
  const command = train
    .command("crossasset")
    .description("train CrossAsset on bars, in walk-forward folds; each fold is tested on later bars")
    .optionsGroup("Data:")
    .option("--bars <file>", "the bars to train on, .csv or .parquet (default: generated bars)")
    .addOption(
      new Option("--generate <bars>", "number of bars to generate if --bars is absent")
        .argParser(wholeNumber(1))
        .default(defaultBars),
    )
    .addOption(
      new Option("--stride <bars>", "bars between two samples").argParser(wholeNumber(1)).default(stride),
    )
    .option("--cache <folder>", 'the folder to cache features in, or "off"', "off")
    .option("--shuffle-labels", "train on shuffled labels, as a check: the model must then learn nothing")
    .optionsGroup("Training:")
    .addOption(
      new Option("--folds <number>", "number of walk-forward folds").argParser(wholeNumber(1)).default(folds),
    )
    .addOption(new Option("--epochs <number>", "epochs per fold").argParser(wholeNumber(1)).default(epochs))
    .addOption(new Option("--batch <samples>", "samples per step").argParser(wholeNumber(1)).default(batch))
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
      new Option("--seed <number>", "the random seed; the same seed gives the same weights")
        .argParser(wholeNumber(0))
        .default(seed),
    )
    .option("--test-epochs", "also test after every epoch, for a curve; this does not change the weights")
    .optionsGroup("Model:")
    .addOption(
      new Option("--width <number>", "the model's width, a multiple of 4 (default: 256)").argParser(
        wholeNumber(4),
      ),
    )
    .addOption(
      new Option("--layers <number>", "the model's attention layers (default: 2)").argParser(wholeNumber(1)),
    )
    .option("--qk-norm", "normalise queries and keys to length 1 (QK norm)");
  addRunOptions(command, "crossasset").action(async (options: TrainOptions) =>
    end(await trainCrossAsset(options)),
  );
}
