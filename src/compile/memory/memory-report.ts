/** The memory of a planned step, and its holders at the peak: the record of `step.memory()`. */

import type { LabelBytes } from "../../records/index.js";
import { accessesOf, type Buffer, type Plan, type Schedule } from "../program/program.js";
import { lifetimesOf, peakOf, plannedBytes } from "../schedule/liveness.js";

/** All buffers with one label. */
export interface PeakHolder extends LabelBytes {
  readonly count: number;
}

/** The memory that a plan needs, as `memory()` returns it. */
export interface MemoryReport {
  /** The size of the planned block. */
  readonly peak: number;
  /** The largest sum of live bytes: no plan for this schedule can be smaller. */
  readonly lowerBound: number;
  /** The schedule position with that sum, and the op of its call; -1 and "" without step memory. */
  readonly at: number;
  readonly op: string;
  /** Live memory at the peak, largest first. It adds up to the lower bound, alignment included. */
  readonly holders: readonly PeakHolder[];
  /** The persistent memory that the schedule accesses, largest first. */
  readonly persistent: readonly LabelBytes[];
}

export function memoryOf(schedule: Schedule, plan: Plan): MemoryReport {
  const lifetimes = lifetimesOf(schedule);
  const { position, bytes } = peakOf(lifetimes);
  // Between two calls, the next one is reported.
  const at = Math.floor(position + 0.5);
  const live = lifetimes.filter(({ first, last }) => first <= position && position <= last);
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
  const buffers = new Set<Buffer>();
  for (const { call } of calls) {
    for (const { slice } of accessesOf(call))
      if (slice.buffer.storage !== undefined) buffers.add(slice.buffer);
  }
  return buffers;
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
