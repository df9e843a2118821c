/** The rule `written`: what is read of step memory was written by the step, and is not left from another. */

import { indexOf } from "./latest-places.js";
import type { Line } from "./line.js";
import type { Proposal } from "./proposal.js";
import { nameCall, namePart, refusal } from "./refusal.js";

/**
 * Goes through the program with the bytes that it has written so far. That the calls which wrote them have ended is
 * the rule `order`. A write counts for all bytes of its part, also where it leaves some out between its rows.
 */
export function requireWritten(proposal: Proposal, line: Line): void {
  // From each piece of memory to the first behind it, or itself, that is not written: paths grow shorter as they are used.
  const unwritten = Int32Array.from(line.bounds, (_, piece) => piece);
  const firstUnwritten = (piece: number): number => {
    let found = piece;
    while (unwritten[found] !== found) found = unwritten[found] ?? found;
    for (let step = piece; step !== found; ) {
      const next = unwritten[step] ?? found;
      unwritten[step] = found;
      step = next;
    }
    return found;
  };

  for (const [index, call] of proposal.program.entries()) {
    const accesses = proposal.accesses[index] ?? [];
    for (const { part, reads } of accesses) {
      if (!reads || part.buffer.storage !== undefined) continue;
      const { start, end } = line.rangeOf(part);
      const piece = firstUnwritten(indexOf(line.bounds, start));
      if (piece >= indexOf(line.bounds, end)) continue;
      const byte = part.offset + (line.bounds[piece] ?? start) - start;
      const finding = `${nameCall(call, index)} reads ${namePart(part)}, and nothing has written byte ${byte} of it before`;
      throw refusal("written", finding, { call: index, buffer: part.buffer.id, byte });
    }
    for (const { part, writes } of accesses) {
      if (!writes) continue;
      const { start, end } = line.rangeOf(part);
      const behind = indexOf(line.bounds, end);
      let piece = firstUnwritten(indexOf(line.bounds, start));
      while (piece < behind) {
        unwritten[piece] = piece + 1;
        piece = firstUnwritten(piece);
      }
    }
  }
}
