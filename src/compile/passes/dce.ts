/**
 * Leaves out calls whose results nobody reads: step memory that dies unseen, and persistent memory that the step forgets. What
 * else is written to persistent memory stays.
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
