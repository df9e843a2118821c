/**
 * Persistent memory that is dead on exit: gradients that the step clears after their last use. A store there that the step itself does
 * not read can be dropped.
 */

import { accessesOf, type BufferSlice, type Call } from "../program/program.js";
import { areDisjoint, extentOf } from "../program/slices.js";

/** A slice whose contents are dead from the call at this index on, unless it is written again. */
export interface Forget {
  readonly slice: BufferSlice;
  readonly place: number;
}

/** Slices that are dead after the last call; adjacent ones are merged. */
export function deadAfter(calls: readonly Call[], forgets: readonly Forget[]): readonly BufferSlice[] {
  const first = forgets.reduce((least, { place }) => Math.min(least, place), calls.length);
  // Few calls write gradients: only those are compared with each slice.
  const { from, to } = rangeOf(forgets.map(({ slice }) => extentOf(slice)));
  const writes = calls.slice(first).flatMap((call, index) =>
    accessesOf(call)
      .filter((access) => access.writes && access.slice.buffer.storage)
      .map(({ slice }) => ({ extent: extentOf(slice), place: first + index }))
      .filter(({ extent }) => extent.from < to && from < extent.to),
  );
  const left = forgets.filter(({ slice, place }) => {
    const own = extentOf(slice);
    return writes.every((write) => write.place < place || areDisjoint(write.extent, own));
  });
  return combineNeighbours(left.map(({ slice }) => slice));
}

function rangeOf(extents: readonly { readonly from: number; readonly to: number }[]) {
  return {
    from: extents.reduce((least, one) => Math.min(least, one.from), Infinity),
    to: extents.reduce((most, one) => Math.max(most, one.to), -Infinity),
  };
}

function combineNeighbours(slices: readonly BufferSlice[]): readonly BufferSlice[] {
  const joined: BufferSlice[] = [];
  const sorted = slices.toSorted((a, b) => a.buffer.id - b.buffer.id || a.offset - b.offset);
  for (const slice of sorted) {
    const last = joined.at(-1);
    if (last?.buffer !== slice.buffer || last.offset + last.size < slice.offset) joined.push(slice);
    else {
      const end = Math.max(last.offset + last.size, slice.offset + slice.size);
      joined[joined.length - 1] = { ...last, size: end - last.offset };
    }
  }
  return joined;
}

/** True if a slice lies in dead memory. */
export function isDeadOnExit(
  deadOnExit: readonly BufferSlice[],
  { buffer, offset, size }: BufferSlice,
): boolean {
  return deadOnExit.some(
    (one) => one.buffer === buffer && one.offset <= offset && offset + size <= one.offset + one.size,
  );
}
