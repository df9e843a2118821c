/** `holdfast doctor`: its options, and its report as text or as one JSON object. */

import { type Command, Option } from "commander";
import { exitCodes } from "../../errors/index.js";
import { settingsTable } from "../../runtime/index.js";
import { commandDefaults } from "../command-defaults.js";
import { size, wholeNumber } from "../options.js";
import { type DoctorListener, type DoctorOptions, examine } from "./doctor.js";
import { TextReport, type TextReportOptions } from "./report-text.js";

/** Options as commander passes them. */
type CommandOptions = Pick<DoctorOptions, "device" | "index" | "memory" | "precision" | "batch"> & {
  readonly json?: boolean;
};

/** Adds the command. Its exit code is passed to `end`. */
export function addDoctor(program: Command, version: string, end: (code: number) => void): void {
  program
    .command("doctor")
    .description("check this machine: print its hardware and run a training step on it")
    .addOption(
      new Option("--device <device>", "the device to check; auto uses a GPU if there is one")
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
      new Option("--batch <samples>", "samples per step (default: 256 on a GPU, 16 on the CPU)").argParser(
        wholeNumber(1),
      ),
    )
    .addOption(new Option("--json", "print one JSON object and nothing else"))
    .action(({ json = false, ...options }: CommandOptions) => {
      const { blas } = commandDefaults();
      const output = { version, json, columns: terminalColumns(), write: writeOut };
      end(runDoctor({ ...options, ...(blas !== undefined && { blas }) }, output));
    });
}

function writeOut(text: string): void {
  process.stdout.write(text);
}

/** A readable line length, even on a very wide terminal or in a file. */
function terminalColumns(): number {
  return Math.min(112, Math.max(72, process.stdout.columns ?? 112));
}

export interface Output extends TextReportOptions {
  readonly json: boolean;
}

const silent: DoctorListener = {
  examined: () => undefined,
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
