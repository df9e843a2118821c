/** The stall report: all information about a stalled run, as one plain JSON record. */

import type { DriverCall } from "../../../driver/index.js";
import type { PhaseName } from "../shared-status.js";
import type { ProcessState } from "./process-state.js";
import type { OpenPhase, Reading } from "./reading.js";

/**
 * `stall`: the thread saw no progress. `program`: no engine work is open, and the program's event loop does not turn.
 * `silence`: the thread sent no heartbeat; the figures are its last.
 */
export type StallKind = "stall" | "program" | "silence";

/** How the run ends: with the exit code `stalled`, by SIGKILL, or not at all. */
export type Ending = "exit" | "kill" | "none";

export interface StallReport {
  readonly format: "holdfast stall report 1";
  readonly time: string;
  readonly pid: number;
  readonly noticedBy: "thread" | "outside process";
  readonly what: {
    readonly kind: StallKind;
    /** The innermost open phase. */
    readonly phase: PhaseName | null;
    /** The step's number; 0 if the phase has none. */
    readonly number: number;
    readonly phases: readonly OpenPhase[];
    readonly call: DriverCall | null;
    readonly op: string | null;
    readonly step: number;
    readonly elapsedMs: number;
    readonly limitMs: number;
  };
  readonly ending: Ending;
  /** Problems while watching. */
  readonly notes: readonly string[];
  readonly budget: Reading["budget"] | null;
  readonly arena: Reading["arena"] | null;
  readonly events: Reading["events"];
  readonly process: ProcessState;
  readonly versions: { readonly node: string; readonly platform: string; readonly arch: string };
}

export function stallReport(findings: {
  readonly kind: StallKind;
  readonly pid: number;
  readonly noticedBy: StallReport["noticedBy"];
  readonly elapsedMs: number;
  readonly limitMs: number;
  /** Undefined if the thread never sent a heartbeat. */
  readonly reading: Reading | undefined;
  readonly process: ProcessState;
  readonly ending: Ending;
  readonly notes: readonly string[];
  readonly time: Date;
}): StallReport {
  const { reading } = findings;
  const innermost = reading?.phases.at(-1);
  return {
    format: "holdfast stall report 1",
    time: findings.time.toISOString(),
    pid: findings.pid,
    noticedBy: findings.noticedBy,
    what: {
      kind: findings.kind,
      phase: innermost?.phase ?? null,
      number: innermost?.number ?? 0,
      phases: reading?.phases ?? [],
      call: reading?.call?.call ?? null,
      op: reading?.op ?? null,
      step: reading?.step ?? 0,
      elapsedMs: findings.elapsedMs,
      limitMs: findings.limitMs,
    },
    ending: findings.ending,
    notes: findings.notes,
    budget: reading?.budget ?? null,
    arena: reading?.arena ?? null,
    events: reading?.events ?? [],
    process: findings.process,
    versions: { node: process.version, platform: process.platform, arch: process.arch },
  };
}
