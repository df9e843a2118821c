/** The rule `written`: what is read of step memory was written by the step, and is not left from another. */

import { beat } from "../../units/index.js";
import type { Visits } from "../program/program.js";
import { indexOf } from "./latest-indices.js";
import { nameCall, nameSlice, rejection } from "./plan-error.js";
import type { Proposal } from "./proposal.js";
import type { Line } from "./timeline.js";

/**
 * Goes through the program with the bytes that it has written so far. That the calls which wrote them have ended is
 * the rule `order`. A write counts for all bytes of its part, also where it leaves some out between its rows. A read of
 * rows at steps counts for the rows alone: nothing has to have written the padding between them.
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
    beat();
    const accesses = proposal.accesses[index] ?? [];
    for (const { slice, reads, visits } of accesses) {
      if (!reads || slice.buffer.storage !== undefined) continue;
      const { start, end } = line.rangeOf(slice);
      const behind = indexOf(line.bounds, end);
      const isPassedOver = (piece: number): boolean => {
        const [from = start, to = end] = line.bounds.subarray(piece, piece + 2);
        return visits !== undefined && !comesTo(visits, from - start, to - start);
      };
      let piece = firstUnwritten(indexOf(line.bounds, start));
      while (piece < behind && isPassedOver(piece)) piece = firstUnwritten(piece + 1);
      if (piece >= behind) continue;
      const byte = slice.offset + (line.bounds[piece] ?? start) - start;
      const finding = `${nameCall(call, index)} reads ${nameSlice(slice)}, and nothing has written byte ${byte} of it before`;
      throw rejection("written", finding, { call: index, buffer: slice.buffer.id, byte });
    }
    for (const { slice, writes } of accesses) {
      if (!writes) continue;
      const { start, end } = line.rangeOf(slice);
      const behind = indexOf(line.bounds, end);
      let piece = firstUnwritten(indexOf(line.bounds, start));
      while (piece < behind) {
        unwritten[piece] = piece + 1;
        piece = firstUnwritten(piece);
      }
    }
  }
}

interface StridedAccess {
  readonly size: number;
  readonly stepBytes: number;
}

/** Does an iteration come to any byte from one of its operand to before another? */
function comesTo({ iteration, operand, elementBytes }: Visits, from: number, to: number): boolean {
  const axes = [...iteration.outer, iteration.row].map(({ size, strides }): StridedAccess => {
    return { size, stepBytes: (strides[operand] ?? 0) * elementBytes };
  });
  // The beginning of the part is the least place only where no step leads back.
  if (axes.some(({ stepBytes }) => stepBytes < 0)) return true;
  // In which order elements are visited does not matter here, and large steps leave out most.
  axes.sort((a, b) => b.stepBytes - a.stepBytes);
  return anyElementIn(axes, elementBytes, from, to);
}

function anyElementIn(
  [first, ...inner]: readonly StridedAccess[],
  elementBytes: number,
  from: number,
  to: number,
): boolean {
  if (!first) return from < elementBytes && to > 0;
  const reach = inner.reduce((sum, { size, stepBytes }) => sum + (size - 1) * stepBytes, elementBytes);
  if (first.stepBytes === 0) return first.size > 0 && anyElementIn(inner, elementBytes, from, to);
  const earliest = Math.max(0, Math.floor((from - reach) / first.stepBytes) + 1);
  const latest = Math.min(first.size - 1, Math.ceil(to / first.stepBytes) - 1);
  for (let index = earliest; index <= latest; index++) {
    const base = index * first.stepBytes;
    if (anyElementIn(inner, elementBytes, from - base, to - base)) return true;
  }
  return false;
}
