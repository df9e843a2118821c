/** Reports a rejected plan: a warning of a few lines, and a file with everything that is needed to find the fault. */

import { mkdirSync, writeFileSync } from "node:fs";
import { join, resolve } from "node:path";
import type { HoldfastError } from "../../errors/index.js";
import type { Runtime } from "../../runtime/index.js";
import type { Call } from "../program/program.js";
import { formatCalls } from "./call-table.js";

export interface RejectedPlan {
  /** The name of the compiled step. */
  readonly name: string;
  readonly rejection: HoldfastError;
  /** The program whose plan was rejected. */
  readonly calls: readonly Call[];
  /** The phases that the new plan leaves out, in pipeline order. */
  readonly leftOut: readonly string[];
  /** The optional schedule that is left out, if that was rejected. */
  readonly schedule?: string;
}

let written = 0;

/** Writes the report and prints the warning; returns the report's path, or why there is none. */
export function warnOfRejection(runtime: Runtime, rejected: RejectedPlan): string {
  const { name, rejection } = rejected;
  const report = writeReport(runtime, rejected);
  runtime.warn(
    `the verifier rejected a plan of compiled ${name}, so the step runs ${describe(rejected)}. ` +
      `This is a bug in Holdfast; please report it with ${report}\n  ${rejection.message}`,
  );
  return report;
}

function describe({ leftOut: [first, ...more], schedule }: RejectedPlan): string {
  if (schedule !== undefined) return `without ${schedule}, and may be slower`;
  const phases = more.length === 1 ? "phase" : `${more.length} phases`;
  const laterPhases = more.length === 0 ? "" : ` and the ${phases} after it`;
  return `without the phase "${first}"${laterPhases}, and may be slower`;
}

function writeReport({ settings, device }: Runtime, rejected: RejectedPlan): string {
  const { name, rejection, calls, leftOut, schedule } = rejected;
  const time = new Date().toISOString();
  const report = {
    ...{ time, step: name, code: rejection.code, message: rejection.message, numbers: rejection.numbers },
    ...{ leftOut, schedule, device, precision: settings.precision },
    ...{ node: process.version, platform: `${process.platform} ${process.arch}` },
    calls: formatCalls({ calls: calls.map((call) => ({ call, stream: 0, after: [] })) }),
  };
  const file = `holdfast-rejected-plan-${process.pid}-${time.replaceAll(/[-:]/g, "")}-${written++}.json`;
  const folder = resolve(settings.reports);
  try {
    mkdirSync(folder, { recursive: true });
    const path = join(folder, file);
    writeFileSync(path, `${JSON.stringify(report, null, 2)}\n`, { flag: "wx", mode: 0o600 });
    return path;
  } catch (error) {
    return `this message (its report could not be written: ${error instanceof Error ? error.message : String(error)})`;
  }
}
