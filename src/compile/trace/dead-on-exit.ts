/**
 * Persistent memory that a step forgets: gradients that it clears behind its last use of them. Nobody wants what it leaves
 * there, so that a store which the step itself does not read is none that has to be made.
 */

import { accessesOf, type Call, type Part } from "../program/program.js";
import { areApart, extentOf } from "../program/slices.js";

/** A part of which nobody wants what is there, from the call at this place on, unless it is written again. */
export interface Forget {
  readonly part: Part;
  readonly place: number;
}

/** What is still forgotten when all calls are done; neighbours are one part. */
export function forgottenBehind(calls: readonly Call[], forgets: readonly Forget[]): readonly Part[] {
  const first = forgets.reduce((least, { place }) => Math.min(least, place), calls.length);
  // Of many calls few write gradients: only those are held against each of them.
  const { from, to } = rangeOf(forgets.map(({ part }) => extentOf(part)));
  const writes = calls.slice(first).flatMap((call, index) =>
    accessesOf(call)
      .filter((access) => access.writes && access.part.buffer.storage)
      .map(({ part }) => ({ extent: extentOf(part), place: first + index }))
      .filter(({ extent }) => extent.from < to && from < extent.to),
  );
  const left = forgets.filter(({ part, place }) => {
    const own = extentOf(part);
    return writes.every((write) => write.place < place || areApart(write.extent, own));
  });
  return joinNeighbours(left.map(({ part }) => part));
}

function rangeOf(extents: readonly { readonly from: number; readonly to: number }[]) {
  return {
    from: extents.reduce((least, one) => Math.min(least, one.from), Infinity),
    to: extents.reduce((most, one) => Math.max(most, one.to), -Infinity),
  };
}

function joinNeighbours(parts: readonly Part[]): readonly Part[] {
  const joined: Part[] = [];
  const sorted = parts.toSorted((a, b) => a.buffer.id - b.buffer.id || a.offset - b.offset);
  for (const part of sorted) {
    const last = joined.at(-1);
    if (last?.buffer !== part.buffer || last.offset + last.size < part.offset) joined.push(part);
    else {
      const end = Math.max(last.offset + last.size, part.offset + part.size);
      joined[joined.length - 1] = { ...last, size: end - last.offset };
    }
  }
  return joined;
}

/** Is all of a part among what is forgotten? */
export function isForgotten(forgotten: readonly Part[], { buffer, offset, size }: Part): boolean {
  return forgotten.some(
    (one) => one.buffer === buffer && one.offset <= offset && offset + size <= one.offset + one.size,
  );
}
