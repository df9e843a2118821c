/** The command line: which commands there are, what they take, and what their exit codes mean. */

import { Command, CommanderError } from "commander";
import { type ErrorCode, errorCodes, exitCodes, HoldfastError } from "../errors/index.js";
import { settingsTable } from "../runtime/index.js";
import { packageVersion } from "../train/index.js";
import { addAsk } from "./ask.js";
import { addBars } from "./bars.js";
import { addCompletion } from "./completion/index.js";
import { addDoctor } from "./doctor/index.js";
import { addHealth } from "./health.js";
import { addInspect } from "./inspect.js";
import { tour } from "./tour.js";
import { addTrain } from "./train/command.js";

/** Runs the command line and tells the exit code; everything it has to say is printed. */
export async function run(args: readonly string[]): Promise<number> {
  let exitCode: number = exitCodes.ok.code;
  const program = new Command("holdfast")
    .description(
      "Trains neural networks from TypeScript, with memory that is proven and errors instead of hangs.",
    )
    .version(packageVersion(), "-v, --version")
    .showHelpAfterError("Run holdfast --help to see what there is.")
    .exitOverride();
  addDoctor(program, packageVersion(), (code) => {
    exitCode = code;
  });
  addTrain(program, (code) => {
    exitCode = code;
  });
  addAsk(program);
  addBars(program);
  addHealth(program, (code) => {
    exitCode = code;
  });
  addInspect(program);
  program.command("tour").description("a short tour of the memory runtime on this machine").action(tour);
  program.command("settings").description("every setting, its default and its meaning").action(printSettings);
  program
    .command("explain")
    .argument("<code>", "an error code, such as OUT_OF_BUDGET")
    .description("what an error code means and what helps")
    .action(explain);
  addCompletion(program);
  try {
    await program.parseAsync(args, { from: "user" });
    return exitCode;
  } catch (error) {
    if (error instanceof CommanderError)
      return error.exitCode === 0 ? exitCodes.ok.code : exitCodes.usage.code;
    if (!(error instanceof HoldfastError)) throw error;
    console.error(`holdfast: ${error.code}: ${error.message}`);
    return exitCodes.failed.code;
  }
}

function printSettings(): void {
  for (const [option, row] of Object.entries(settingsTable)) {
    console.log(
      `${row.variable} (option ${option}): ${row.kind}, default ${row.defaultText}\n  ${row.meaning}`,
    );
  }
}

function explain(text: string): void {
  const code = text.toUpperCase() as ErrorCode;
  const row = Object.hasOwn(errorCodes, code) ? errorCodes[code] : undefined;
  if (!row) {
    throw new HoldfastError(
      "BAD_ARGUMENT",
      `"${text}" is no error code. The codes are ${Object.keys(errorCodes).join(", ")}.`,
    );
  }
  console.log(`${code}: ${row.meaning}\n  ${row.help}`);
}
