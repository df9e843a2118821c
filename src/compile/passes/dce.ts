/**
 * Dead code elimination: drops calls whose results nobody reads, in step memory or in persistent memory that is dead on exit. Other
 * writes to persistent memory stay.
 */

import { accessesOf, type Buffer, type BufferSlice, type Call } from "../program/program.js";
import { isDeadOnExit } from "../trace/dead-on-exit.js";

export function eliminateDeadCalls(
  calls: readonly Call[],
  deadOnExit: readonly BufferSlice[] = [],
): readonly Call[] {
  const wanted = new Set<Buffer>();
  const outlives = (slice: BufferSlice): boolean =>
    slice.buffer.storage !== undefined && !isDeadOnExit(deadOnExit, slice);
  const kept: Call[] = [];
  for (const call of calls.toReversed()) {
    const accesses = accessesOf(call);
    const isWanted = accesses.some(
      ({ slice, writes }) => writes && (wanted.has(slice.buffer) || outlives(slice)),
    );
    if (!isWanted) continue;
    for (const { slice, reads } of accesses) if (reads) wanted.add(slice.buffer);
    kept.push(call);
  }
  return kept.reverse();
}
