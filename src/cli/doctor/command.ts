/** `holdfast doctor` as a command: its options, and its report as text or as one JSON object. */

import { type Command, Option } from "commander";
import { exitCodes } from "../../errors/index.js";
import { settingsTable } from "../../runtime/index.js";
import { size, wholeNumber } from "../options.js";
import { type DoctorListener, type DoctorOptions, examine } from "./doctor.js";
import { TextReport, type TextReportOptions } from "./report-text.js";

/** Options as commander gives them. */
type GivenOptions = Pick<DoctorOptions, "device" | "index" | "memory" | "precision" | "batch"> & {
  readonly json?: boolean;
};

/** Adds the command; `end` is told its exit code. */
export function addDoctor(program: Command, version: string, end: (code: number) => void): void {
  program
    .command("doctor")
    .description("check this machine: what it has, and whether a training step works on it")
    .addOption(
      new Option("--device <device>", "the device to check; auto takes a GPU where there is one")
        .choices(["auto", "cpu", "cuda"])
        .default("auto"),
    )
    .addOption(new Option("--index <number>", "the GPU to check, counted from 0").argParser(wholeNumber(0)))
    .addOption(new Option("--memory <size>", "the memory budget, such as 8GiB").argParser(size))
    .addOption(
      new Option("--precision <precision>", "the precision of matrix products on a GPU").choices(
        settingsTable.precision.kind.split(" | "),
      ),
    )
    .addOption(
      new Option("--batch <samples>", "samples in a step; default: 256 on a GPU, 16 on the CPU").argParser(
        wholeNumber(1),
      ),
    )
    .addOption(new Option("--json", "print one JSON object and nothing else"))
    .action(({ json = false, ...options }: GivenOptions) =>
      end(runDoctor(options, { version, json, columns: terminalColumns(), write: writeOut })),
    );
}

function writeOut(text: string): void {
  process.stdout.write(text);
}

/** Lines of a readable length, also on a very wide terminal and in a file. */
function terminalColumns(): number {
  return Math.min(112, Math.max(72, process.stdout.columns ?? 112));
}

export interface Output extends TextReportOptions {
  readonly json: boolean;
}

const silent: DoctorListener = {
  looked: () => undefined,
  opened: () => undefined,
  entered: () => undefined,
  left: () => undefined,
  ended: () => undefined,
};

/** Examines the machine and writes the report; returns the exit code. */
export function runDoctor(options: DoctorOptions, { json, ...output }: Output): number {
  const report = examine(options, json ? silent : new TextReport(output));
  if (json) output.write(`${JSON.stringify({ holdfast: output.version, ...report }, null, 2)}\n`);
  return report.passed ? exitCodes.ok.code : exitCodes.failed.code;
}
