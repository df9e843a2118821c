/** Leaves out calls whose results nobody reads: step memory that dies unseen. What is written to persistent memory stays. */

import { accessesOf, type Buffer, type Call } from "../program.js";

export function removeDeadCode(calls: readonly Call[]): readonly Call[] {
  const wanted = new Set<Buffer>();
  const kept: Call[] = [];
  for (const call of calls.toReversed()) {
    const accesses = accessesOf(call);
    const isWanted = accesses.some(
      ({ part, writes }) => writes && (part.buffer.storage !== undefined || wanted.has(part.buffer)),
    );
    if (!isWanted) continue;
    for (const { part, reads } of accesses) if (reads) wanted.add(part.buffer);
    kept.push(call);
  }
  return kept.reverse();
}
