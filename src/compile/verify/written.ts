/** Rule `written`: step memory is not read before this step has written it. */

import { beat } from "../../units/index.js";
import type { Visits } from "../program/program.js";
import type { AddressSpace } from "./address-space.js";
import { indexOf } from "./latest-indices.js";
import { nameCall, nameSlice, rejection } from "./plan-error.js";
import type { Proposal } from "./proposal.js";

/**
 * Tracks the bytes that the program has written so far; rule `order` ensures that the writes have completed. A write counts for
 * all bytes of its slice, even if it leaves gaps between rows. A strided read counts for its rows only: the padding between them may
 * be unwritten.
 */
export function requireWritten(proposal: Proposal, space: AddressSpace): void {
  // Union-find with path compression: from each segment to the first unwritten one at or after it.
  const unwritten = Int32Array.from(space.bounds, (_, segment) => segment);
  const firstUnwritten = (segment: number): number => {
    let root = segment;
    while (unwritten[root] !== root) root = unwritten[root] ?? root;
    for (let step = segment; step !== root; ) {
      const next = unwritten[step] ?? root;
      unwritten[step] = root;
      step = next;
    }
    return root;
  };

  for (const [index, call] of proposal.program.entries()) {
    beat();
    const accesses = proposal.accesses[index] ?? [];
    for (const { slice, reads, visits } of accesses) {
      if (!reads || slice.buffer.storage !== undefined) continue;
      const { start, end } = space.rangeOf(slice);
      const afterEnd = indexOf(space.bounds, end);
      const isSkipped = (segment: number): boolean => {
        const [from = start, to = end] = space.bounds.subarray(segment, segment + 2);
        return visits !== undefined && !visitsAny(visits, from - start, to - start);
      };
      let segment = firstUnwritten(indexOf(space.bounds, start));
      while (segment < afterEnd && isSkipped(segment)) segment = firstUnwritten(segment + 1);
      if (segment >= afterEnd) continue;
      const byte = slice.offset + (space.bounds[segment] ?? start) - start;
      const finding = `${nameCall(call, index)} reads ${nameSlice(slice)}, and no earlier call writes byte ${byte} of it`;
      throw rejection("written", finding, { call: index, buffer: slice.buffer.id, byte });
    }
    for (const { slice, writes } of accesses) {
      if (!writes) continue;
      const { start, end } = space.rangeOf(slice);
      const afterEnd = indexOf(space.bounds, end);
      let segment = firstUnwritten(indexOf(space.bounds, start));
      while (segment < afterEnd) {
        unwritten[segment] = segment + 1;
        segment = firstUnwritten(segment);
      }
    }
  }
}

interface StridedAccess {
  readonly size: number;
  readonly stepBytes: number;
}

/** True if an iteration visits any byte of its operand in [from, to). */
function visitsAny({ iteration, operand, elementBytes }: Visits, from: number, to: number): boolean {
  const axes = [...iteration.outer, iteration.row].map(({ size, strides }): StridedAccess => {
    return { size, stepBytes: (strides[operand] ?? 0) * elementBytes };
  });
  // The start of the slice is the lowest address only if no stride is negative.
  if (axes.some(({ stepBytes }) => stepBytes < 0)) return true;
  // The order of the axes does not change the result; with large strides first, most are skipped.
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
