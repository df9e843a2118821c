/** `holdfast predict` and `holdfast eval`: run a trained model on bars. */

import { type Command, Option } from "commander";
import { classNames, openTrainedModel, type Prediction, readBars } from "../crossasset/index.js";
import { device as openDevice } from "../tensor/index.js";
import { requireRun } from "../train/index.js";
import { commandDefaults } from "./command-defaults.js";
import { wholeNumber } from "./options.js";
import { evaluationText } from "./train/summary.js";

interface CommandOptions {
  readonly bars: string;
  readonly device: "auto" | "cpu" | "cuda";
  readonly stride: number;
  readonly json?: boolean;
}

/** Adds `predict` and `eval`. */
export function addPredictAndEval(program: Command): void {
  const predict = program.command("predict").description("print the predictions of a trained model for bars");
  withOptions(
    predict
      .command("crossasset")
      .description("print long, short or flat and the probabilities, one line per time and scale"),
  ).action(async (run: string, options: CommandOptions) => {
    await withTrainedModel(run, options, (model, bars) => {
      const { stride, json = false } = options;
      // The header is printed with the first prediction, so that an error prints no incomplete table.
      let isFirst = true;
      const take = (prediction: Prediction): void => {
        if (isFirst && !json) print(["time", "minutes", "answer", ...classNames].join());
        isFirst = false;
        print(json ? jsonLine(prediction) : csvLine(prediction));
      };
      model.predict(bars, take, { stride });
    });
  });
  const evaluate = program.command("eval").description("measure the accuracy of a trained model");
  withOptions(
    evaluate
      .command("crossasset")
      .description("print loss and accuracy on bars, for all scales and for each"),
  ).action(async (run: string, options: CommandOptions) => {
    await withTrainedModel(run, options, (model, bars) => {
      const figures = model.evaluate(bars, { stride: options.stride });
      print(options.json ? JSON.stringify(figures, undefined, 2) : evaluationText(figures));
    });
  });
}

function withOptions(command: Command): Command {
  return command
    .argument("<run>", "the folder of a run, such as runs/NAME")
    .requiredOption("--bars <file>", "the bars to predict for, .csv or .parquet (required)")
    .addOption(
      new Option("--device <device>", "the device to run on; auto uses a GPU if there is one")
        .choices(["auto", "cpu", "cuda"])
        .default("auto"),
    )
    .addOption(
      new Option("--stride <bars>", "bars between two predictions").argParser(wholeNumber(1)).default(60),
    )
    .option("--json", "print JSON instead of text");
}

/** Opens the run's model and reads the bars; closes the device afterwards. */
async function withTrainedModel(
  run: string,
  { bars, device: name }: CommandOptions,
  use: (model: ReturnType<typeof openTrainedModel>, bars: Awaited<ReturnType<typeof readBars>>) => void,
): Promise<void> {
  requireRun(run);
  const loadedBars = await readBars(bars);
  const device = await openDevice(name, commandDefaults());
  try {
    use(openTrainedModel(device, run), loadedBars);
  } finally {
    device.close();
  }
}

const print = (line: string): void => void process.stdout.write(`${line}\n`);

function csvLine({ time, minutes, answer, probabilities }: Prediction): string {
  return [
    new Date(time).toISOString(),
    minutes,
    answer,
    ...probabilities.map((probability) => probability.toFixed(4)),
  ].join();
}

function jsonLine({ time, ...rest }: Prediction): string {
  return JSON.stringify({ time: new Date(time).toISOString(), ...rest });
}
