/** `holdfast predict` and `holdfast eval`: a model that a run has trained, asked about bars. */

import { type Command, Option } from "commander";
import { type Answer, classNames, openTrainedModel, readBars } from "../crossasset/index.js";
import { device as openDevice } from "../tensor/index.js";
import { requireRun } from "../train/index.js";
import { endOnStall } from "./end-on-stall.js";
import { wholeNumber } from "./options.js";
import { evaluationText } from "./train/summary.js";

interface AskedOptions {
  readonly bars: string;
  readonly device: "auto" | "cpu" | "cuda";
  readonly stride: number;
  readonly json?: boolean;
}

/** Adds both commands. */
export function addAsk(program: Command): void {
  const predict = program.command("predict").description("print what a trained model predicts for bars");
  withOptions(
    predict
      .command("crossasset")
      .description("print long, short or flat with its probabilities, a line for each time and scale"),
  ).action(async (run: string, options: AskedOptions) => {
    await ask(run, options, (model, bars) => {
      const { stride, json = false } = options;
      // After the first answer is there, so that an error is not preceded by half an output.
      let isFirst = true;
      const take = (answer: Answer): void => {
        if (isFirst && !json) print(["time", "minutes", "answer", ...classNames].join());
        isFirst = false;
        print(json ? jsonLine(answer) : csvLine(answer));
      };
      model.predict(bars, take, { stride });
    });
  });
  const evaluate = program.command("eval").description("measure how often a trained model is right");
  withOptions(
    evaluate
      .command("crossasset")
      .description("print loss and accuracy on bars, over all scales and for each"),
  ).action(async (run: string, options: AskedOptions) => {
    await ask(run, options, (model, bars) => {
      const figures = model.evaluate(bars, { stride: options.stride });
      print(options.json ? JSON.stringify(figures, undefined, 2) : evaluationText(figures));
    });
  });
}

function withOptions(command: Command): Command {
  return command
    .argument("<run>", "the folder of a run, such as runs/NAME")
    .requiredOption("--bars <file>", "the bars to ask about, .csv or .parquet (required)")
    .addOption(
      new Option("--device <device>", "the device to run on; auto takes a GPU where there is one")
        .choices(["auto", "cpu", "cuda"])
        .default("auto"),
    )
    .addOption(
      new Option("--stride <bars>", "bars from one question to the next")
        .argParser(wholeNumber(1))
        .default(60),
    )
    .option("--json", "print JSON instead of text");
}

async function ask(
  run: string,
  { bars, device: name }: AskedOptions,
  use: (model: ReturnType<typeof openTrainedModel>, bars: Awaited<ReturnType<typeof readBars>>) => void,
): Promise<void> {
  requireRun(run);
  const read = await readBars(bars);
  const device = await openDevice(name, endOnStall());
  try {
    use(openTrainedModel(device, run), read);
  } finally {
    device.close();
  }
}

const print = (line: string): void => void process.stdout.write(`${line}\n`);

function csvLine({ time, minutes, answer, probabilities }: Answer): string {
  return [
    new Date(time).toISOString(),
    minutes,
    answer,
    ...probabilities.map((one) => one.toFixed(4)),
  ].join();
}

function jsonLine({ time, ...rest }: Answer): string {
  return JSON.stringify({ time: new Date(time).toISOString(), ...rest });
}
