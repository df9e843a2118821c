/** `holdfast predict` and `holdfast eval`: a model that a run has trained, asked about bars. */

import { type Command, Option } from "commander";
import { type Answer, classNames, openTrainedModel, readBars } from "../crossasset/index.js";
import { device as openDevice } from "../tensor/index.js";
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
  withOptions(
    program
      .command("predict")
      .command("crossasset")
      .description("a line for each time and scale: what the model says"),
  ).action(async (run: string, options: AskedOptions) => {
    const lines = options.json ? jsonLine : csvLine;
    if (!options.json) print(["time", "minutes", "answer", ...classNames].join());
    await ask(run, options, (model, bars) => {
      model.predict(bars, (answer) => print(lines(answer)), { stride: options.stride });
    });
  });
  withOptions(
    program
      .command("eval")
      .command("crossasset")
      .description("how often the model is right about these bars"),
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
    .requiredOption("--bars <file>", "bars as .csv or .parquet")
    .addOption(
      new Option("--device <device>", "where to run").choices(["auto", "cpu", "cuda"]).default("auto"),
    )
    .addOption(
      new Option("--stride <bars>", "bars from question to question").argParser(wholeNumber(1)).default(60),
    )
    .option("--json", "JSON instead of text");
}

async function ask(
  run: string,
  { bars, device: name }: AskedOptions,
  use: (model: ReturnType<typeof openTrainedModel>, bars: Awaited<ReturnType<typeof readBars>>) => void,
): Promise<void> {
  const read = await readBars(bars);
  const device = await openDevice(name, { print: () => undefined });
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
