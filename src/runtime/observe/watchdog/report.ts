/** The stall report: everything known about a run that stands still, as one plain JSON record. */

import type { DriverCall } from "../../../driver/index.js";
import type { PhaseName } from "../shared-status.js";
import type { ProcessState } from "./process-state.js";
import type { OpenPhase, Reading } from "./reading.js";

/**
 * `stall`: the thread saw nothing move. `program`: nothing of Holdfast is open, and the program's event loop does not turn.
 * `silence`: the thread itself was not heard; the figures are its last.
 */
export type StallKind = "stall" | "program" | "silence";

/** How the run ends: by the exit code `stalled`, by SIGKILL, or not at all. */
export type Ending = "exit" | "kill" | "none";

export interface StallReport {
  readonly format: "holdfast stall report 1";
  readonly time: string;
  readonly pid: number;
  readonly noticedBy: "thread" | "outside process";
  readonly what: {
    readonly kind: StallKind;
    /** The innermost phase that has not ended. */
    readonly phase: PhaseName | null;
    /** The step's number, 0 where the phase has none. */
    readonly number: number;
    readonly phases: readonly OpenPhase[];
    readonly call: DriverCall | null;
    readonly op: string | null;
    readonly step: number;
    readonly elapsedMs: number;
    readonly limitMs: number;
  };
  readonly ending: Ending;
  /** What did not go as it should while watching. */
  readonly notes: readonly string[];
  readonly budget: Reading["budget"] | null;
  readonly arena: Reading["arena"] | null;
  readonly events: Reading["events"];
  readonly process: ProcessState;
  readonly versions: { readonly node: string; readonly platform: string; readonly arch: string };
}

export function stallReport(found: {
  readonly kind: StallKind;
  readonly pid: number;
  readonly noticedBy: StallReport["noticedBy"];
  readonly elapsedMs: number;
  readonly limitMs: number;
  /** Undefined where the thread was never heard. */
  readonly reading: Reading | undefined;
  readonly process: ProcessState;
  readonly ending: Ending;
  readonly notes: readonly string[];
  readonly time: Date;
}): StallReport {
  const { reading } = found;
  const innermost = reading?.phases.at(-1);
  return {
    format: "holdfast stall report 1",
    time: found.time.toISOString(),
    pid: found.pid,
    noticedBy: found.noticedBy,
    what: {
      kind: found.kind,
      phase: innermost?.phase ?? null,
      number: innermost?.number ?? 0,
      phases: reading?.phases ?? [],
      call: reading?.call?.call ?? null,
      op: reading?.op ?? null,
      step: reading?.step ?? 0,
      elapsedMs: found.elapsedMs,
      limitMs: found.limitMs,
    },
    ending: found.ending,
    notes: found.notes,
    budget: reading?.budget ?? null,
    arena: reading?.arena ?? null,
    events: reading?.events ?? [],
    process: found.process,
    versions: { node: process.version, platform: process.platform, arch: process.arch },
  };
}
