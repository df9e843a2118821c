/**
 * A program: a traced step below its ops. Calls of kernels over buffers, in the order in which the step made them; only persistent
 * memory has an address yet. Passes turn one program into another.
 */

import { type StepPhase, stepPhases } from "../../records/index.js";
import type { Access } from "./access.js";
import type { Buffer, BufferSlice } from "./buffer.js";
import { kindOf, type Work } from "./kinds/index.js";
import type { SliceMap } from "./kinds/kind.js";

export type { Access, Visits } from "./access.js";
export { type Buffer, type BufferSlice, isSameSlice } from "./buffer.js";
export type { ColumnCall } from "./kinds/column.js";
export type { ComboCall } from "./kinds/combo.js";
export type { CopyCall } from "./kinds/copy.js";
export type { FillCall } from "./kinds/fill.js";
export type { GemmCall } from "./kinds/gemm.js";
export type { GemmEpilogueCall } from "./kinds/gemm-epilogue.js";
export type { GroupedGemmCall } from "./kinds/grouped-gemm.js";
export type { GroupedReduceCall } from "./kinds/grouped-reduce.js";
export type { Work } from "./kinds/index.js";
export type { LaunchCall } from "./kinds/launch.js";
export type { PartialReduceCall } from "./kinds/partial-reduce.js";
export { forwardedOutput, type RowCall } from "./kinds/row.js";

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
  return kindOf(work).isLaunched !== false;
}

/** The order of a program's calls, and which of them may run concurrently. */
export interface Schedule {
  readonly calls: readonly ScheduledCall[];
  /** True if the main stream has priority over side streams. */
  readonly isMainFirst?: boolean;
}

export interface ScheduledCall {
  readonly call: Call;
  /** Calls of one stream run in order. 0 is the main stream, where all others fork and join. */
  readonly stream: number;
  /** Schedule indices of earlier calls on other streams that it waits for. */
  readonly after: readonly number[];
  /**
   * Set if the call uses programmatic dependent launch: the operands that it prefetches before the grid dependency wait. It reads nothing
   * else and writes nothing before the wait.
   */
  readonly prefetches?: readonly BufferSlice[];
}

/** The layout of step memory: the offset of each buffer in one block of memory. */
export interface Plan {
  readonly bytes: number;
  readonly offsets: ReadonlyMap<Buffer, number>;
}
