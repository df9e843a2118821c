/** What a planned step needs, and who holds it where it needs the most: the record behind `step.memory()`. */

import type { LabelBytes } from "../../records/index.js";
import { accessesOf, type Buffer, type Plan, type Schedule } from "../program/program.js";
import { lifetimesOf, peakOf, plannedBytes } from "../schedule/liveness.js";

/** The buffers of one label, taken together. */
export interface PeakHolder extends LabelBytes {
  readonly count: number;
}

/** The memory that a plan needs, as `memory()` returns it. */
export interface MemoryReport {
  /** The bytes of the block that the plan needs. */
  readonly peak: number;
  /** The most that is live at once: no plan for this schedule can need less. */
  readonly lowerBound: number;
  /** The place in the schedule where that much is live, and the op of the call there; -1 and none without step memory. */
  readonly at: number;
  readonly op: string;
  /** What is live there, largest first. It adds up to the lower bound: what alignment adds is counted. */
  readonly holders: readonly PeakHolder[];
  /** The persistent memory that the schedule touches, largest first. */
  readonly persistent: readonly LabelBytes[];
}

export function memoryOf(schedule: Schedule, plan: Plan): MemoryReport {
  const lifetimes = lifetimesOf(schedule);
  const { place, bytes } = peakOf(lifetimes);
  // Between two calls, it is the next one that is told.
  const at = Math.floor(place + 0.5);
  const live = lifetimes.filter(({ first, last }) => first <= place && place <= last);
  const persistent = sumByLabel(persistentBuffers(schedule), (buffer) => buffer.bytes);
  return {
    peak: plan.bytes,
    lowerBound: bytes,
    at: bytes > 0 ? at : -1,
    op: bytes > 0 ? (schedule.calls[at]?.call.op ?? "") : "",
    holders: sumByLabel(
      live.map(({ buffer }) => buffer),
      plannedBytes,
    ),
    persistent: persistent.map(({ label, bytes }) => ({ label, bytes })),
  };
}

function persistentBuffers({ calls }: Schedule): Iterable<Buffer> {
  const found = new Set<Buffer>();
  for (const { call } of calls) {
    for (const { slice } of accessesOf(call)) if (slice.buffer.storage !== undefined) found.add(slice.buffer);
  }
  return found;
}

function sumByLabel(buffers: Iterable<Buffer>, bytesOf: (buffer: Buffer) => number): PeakHolder[] {
  const sums = new Map<string, { label: string; bytes: number; count: number }>();
  for (const buffer of buffers) {
    if (buffer.bytes === 0) continue;
    const sum = sums.get(buffer.label) ?? { label: buffer.label, bytes: 0, count: 0 };
    sum.bytes += bytesOf(buffer);
    sum.count++;
    sums.set(buffer.label, sum);
  }
  return [...sums.values()].sort((a, b) => b.bytes - a.bytes || (a.label < b.label ? -1 : 1));
}
