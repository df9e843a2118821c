/** A call: an op of a traced step after its lowering, a kernel over slices of buffers. Only persistent memory has an address yet. */

import { type StepPhase, stepPhases } from "../../records/index.js";
import type { Access } from "./access.js";
import { kindOf, type Work } from "./kinds/index.js";
import type { SliceMap } from "./kinds/kind.js";

export interface Call {
  /** The op that it belongs to, for messages, times and explain(). */
  readonly op: string;
  readonly work: Work;
  /** Default: "forward". For reports only; no pass depends on it. */
  readonly phase?: StepPhase | undefined;
  /** Rematerialised copy of an earlier call; must stay after the original. */
  readonly isRematerialized?: boolean;
  /** Scheduled early so that its consumers start sooner. Fuse it only with other hoisted calls. */
  readonly isHoisted?: boolean;
}

/** The phase of a call that does the work of several: the latest of theirs. */
export function latestPhase(calls: readonly (Call | undefined)[]): StepPhase {
  const latest = calls.map((call) => stepPhases.indexOf(call?.phase ?? "forward"));
  return stepPhases[Math.max(0, ...latest)] ?? "forward";
}

/** Each operand of a call by itself, even if several are the same slice. */
export function accessesOf({ work }: Call): readonly Access[] {
  return kindOf(work).accesses(work);
}

/** The accesses of each kernel that a launch runs concurrently; empty if it runs one. */
export function membersOf({ work }: Call): readonly (readonly Access[])[] {
  return kindOf(work).members?.(work) ?? [];
}

/** The same work on other slices. */
export function mapSlices(work: Work, to: SliceMap): Work {
  return kindOf(work).mapSlices(work, to);
}

/** True if it is a kernel launch, and not a fill or a copy. */
export function isLaunched({ work }: Call): boolean {
  return kindOf(work).isLaunched?.(work) ?? true;
}
