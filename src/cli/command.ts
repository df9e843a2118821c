/** The command line: its commands, their options and the exit codes. */

import { Command, CommanderError, InvalidArgumentError } from "commander";
import {
  type ErrorCode,
  errorCodes,
  exitCodes,
  exitForCode,
  HoldfastError,
  toExitCode,
} from "../errors/index.js";
import { packageVersion } from "../files/index.js";
import { settingsTable } from "../runtime/index.js";
import { addBars } from "./bars.js";
import { addCompletion } from "./completion/index.js";
import { addDoctor } from "./doctor/index.js";
import { addHealth } from "./health.js";
import { addInspect } from "./inspect.js";
import { addLaunch } from "./launch.js";
import { addPredictAndEval } from "./predict.js";
import { addGenerate, addServe } from "./texts/index.js";
import { tour } from "./tour.js";
import { addTrain } from "./train/command.js";

/** Runs the command line, prints its output and errors, and returns the exit code. */
export async function run(args: readonly string[]): Promise<number> {
  let exitCode: number = exitCodes.ok.code;
  const program = buildProgram((code) => {
    exitCode = code;
  });
  try {
    await program.parseAsync(args, { from: "user" });
    return exitCode;
  } catch (error) {
    if (error instanceof CommanderError)
      return error.exitCode === 0 ? exitCodes.ok.code : exitCodes.usage.code;
    if (!(error instanceof HoldfastError)) throw error;
    console.error(`holdfast: ${error.code}: ${error.message}`);
    return toExitCode(error);
  }
}

/** All commands with their options. A command with its own exit code passes it to `end`. */
export function buildProgram(end: (code: number) => void): Command {
  const program = new Command("holdfast")
    .description("Train neural networks from TypeScript, on NVIDIA GPUs and on the CPU.")
    .version(packageVersion(), "-v, --version", "print the version")
    .helpOption("-h, --help", "print this help")
    .helpCommand("help [command]", "print the help for a command")
    .addHelpText("after", helpEnd)
    .exitOverride();
  addDoctor(program, packageVersion(), end);
  addTrain(program, end);
  addLaunch(program, end);
  addPredictAndEval(program);
  addGenerate(program, end);
  addServe(program, end);
  addBars(program);
  addHealth(program, end);
  addInspect(program);
  program.command("tour").description("demonstrate the memory runtime on this machine").action(tour);
  program
    .command("settings")
    .description("list every setting with its default and its meaning")
    .action(printSettings);
  program
    .command("explain")
    .argument("<code>", "an error code such as OUT_OF_BUDGET, or an exit code such as 4", parseCode)
    .description("explain an error code or an exit code, and what to do about it")
    .action(explain);
  addCompletion(program);
  pointToHelp(program);
  return program;
}

const helpEnd = `
Start here:
  holdfast doctor                         check this machine
  holdfast train crossasset               train on a generated market
  holdfast train lm                       fine-tune a language model
  holdfast inspect                        look at the runs in runs/

Exit codes:
${exitLines()}
`;

/** After an error, a command points to its own help instead of the program's. */
function pointToHelp(command: Command, path: readonly string[] = []): void {
  const words = [...path, command.name()];
  const list = command.commands.length > 0 ? "commands" : "options";
  command.showHelpAfterError(`Run ${words.join(" ")} --help to see its ${list}.`);
  for (const child of command.commands) pointToHelp(child, words);
}

function exitLines(): string {
  return Object.values(exitCodes)
    .map(({ code, meaning }) => `  ${String(code).padEnd(3)} ${meaning}`)
    .join("\n");
}

function printSettings(): void {
  for (const [option, row] of Object.entries(settingsTable)) {
    console.log(
      `${row.variable} (option ${option}): ${row.kind}, default ${row.defaultText}\n  ${row.meaning}`,
    );
  }
}

/** Parses an error code or an exit code. An unknown code is an error that lists the codes. */
function parseCode(text: string): string {
  const code = text.toUpperCase();
  const isKnown =
    Object.hasOwn(errorCodes, code) || Object.values(exitCodes).some((row) => String(row.code) === code);
  if (isKnown) return code;
  throw new InvalidArgumentError(
    `The error codes are ${Object.keys(errorCodes).join(", ")}. The exit codes are ${Object.values(exitCodes)
      .map((row) => row.code)
      .join(", ")}.`,
  );
}

function explain(code: string): void {
  const exit = Object.values(exitCodes).find((row) => String(row.code) === code);
  if (exit) {
    console.log(`${code}: ${exit.meaning}\n  Retry: ${exit.retry}.`);
    return;
  }
  const { meaning, help } = errorCodes[code as ErrorCode];
  console.log(
    `${code}: ${meaning}\n  ${help}\n  Exit code: ${exitCodes[exitForCode(code as ErrorCode)].code}.`,
  );
}
