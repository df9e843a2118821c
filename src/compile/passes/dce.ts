/**
 * Leaves out calls whose results nobody reads: step memory that dies unseen, and persistent memory that the step forgets. What
 * else is written to persistent memory stays.
 */

import { accessesOf, type Buffer, type Call, type Part } from "../program/program.js";
import { isForgotten } from "../trace/dead-on-exit.js";

export function removeDeadCode(calls: readonly Call[], forgotten: readonly Part[] = []): readonly Call[] {
  const wanted = new Set<Buffer>();
  const outlives = (part: Part): boolean =>
    part.buffer.storage !== undefined && !isForgotten(forgotten, part);
  const kept: Call[] = [];
  for (const call of calls.toReversed()) {
    const accesses = accessesOf(call);
    const isWanted = accesses.some(
      ({ part, writes }) => writes && (wanted.has(part.buffer) || outlives(part)),
    );
    if (!isWanted) continue;
    for (const { part, reads } of accesses) if (reads) wanted.add(part.buffer);
    kept.push(call);
  }
  return kept.reverse();
}
