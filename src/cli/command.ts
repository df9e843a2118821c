/** The command line: which commands there are, what they take, and what their exit codes mean. */

import { Command, CommanderError, InvalidArgumentError } from "commander";
import {
  type ErrorCode,
  errorCodes,
  exitCodes,
  exitForCode,
  HoldfastError,
  toExitCode,
} from "../errors/index.js";
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

/** All commands with their options; `end` is told the exit code of a command that has one of its own. */
export function buildProgram(end: (code: number) => void): Command {
  const program = new Command("holdfast")
    .description("Train neural networks from TypeScript, on NVIDIA GPUs and on the CPU.")
    .version(packageVersion(), "-v, --version", "print the version")
    .helpOption("-h, --help", "print this help")
    .helpCommand("help [command]", "print the help of a command")
    .addHelpText("after", helpEnd)
    .exitOverride();
  addDoctor(program, packageVersion(), end);
  addTrain(program, end);
  addAsk(program);
  addBars(program);
  addHealth(program, end);
  addInspect(program);
  program
    .command("tour")
    .description("show the memory runtime at work on this machine, in a minute")
    .action(tour);
  program
    .command("settings")
    .description("list every setting with its default and its meaning")
    .action(printSettings);
  program
    .command("explain")
    .argument("<code>", "an error code such as OUT_OF_BUDGET, or an exit code such as 4", knownCode)
    .description("say what an error code or an exit code means and what helps")
    .action(explain);
  addCompletion(program);
  pointToHelp(program);
  return program;
}

const helpEnd = `
Start here:
  holdfast doctor                         check this machine
  holdfast train crossasset               train on a generated market
  holdfast inspect                        look at the runs in runs/

Exit codes:
${exitLines()}
`;

/** After an error, a command names its own help, and not that of the whole program. */
function pointToHelp(command: Command, path: readonly string[] = []): void {
  const own = [...path, command.name()];
  const what = command.commands.length > 0 ? "commands" : "options";
  command.showHelpAfterError(`Run ${own.join(" ")} --help to see its ${what}.`);
  for (const below of command.commands) pointToHelp(below, own);
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

/** An error code or an exit code, as the table has it. */
function knownCode(text: string): string {
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
    console.log(`${code}: ${exit.meaning}\n  The same command again: ${exit.retry}.`);
    return;
  }
  const { meaning, help } = errorCodes[code as ErrorCode];
  console.log(
    `${code}: ${meaning}\n  ${help}\n  Exit code: ${exitCodes[exitForCode(code as ErrorCode)].code}.`,
  );
}
