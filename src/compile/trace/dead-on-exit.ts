/**
 * Persistent memory that is dead on exit: gradients that the step clears after their last use. A store there that the step itself does
 * not read can be dropped.
 */

import { accessesOf, type BufferSlice, type Call } from "../program/program.js";
import { areDisjoint, extentOf } from "../program/slices.js";

/** A slice whose contents are dead from the call at this position on, unless it is written again. */
export interface Discard {
  readonly slice: BufferSlice;
  readonly position: number;
}

/** Slices that are dead after the last call; adjacent ones are merged. */
export function deadAfter(calls: readonly Call[], discards: readonly Discard[]): readonly BufferSlice[] {
  const first = discards.reduce((min, { position }) => Math.min(min, position), calls.length);
  // Few calls write gradients: only those are compared with each slice.
  const { from, to } = rangeOf(discards.map(({ slice }) => extentOf(slice)));
  const writes = calls.slice(first).flatMap((call, index) =>
    accessesOf(call)
      .filter((access) => access.writes && access.slice.buffer.storage)
      .map(({ slice }) => ({ extent: extentOf(slice), position: first + index }))
      .filter(({ extent }) => extent.from < to && from < extent.to),
  );
  const dead = discards.filter(({ slice, position }) => {
    const discarded = extentOf(slice);
    return writes.every((write) => write.position < position || areDisjoint(write.extent, discarded));
  });
  return mergeNeighbours(dead.map(({ slice }) => slice));
}

function rangeOf(extents: readonly { readonly from: number; readonly to: number }[]) {
  return {
    from: extents.reduce((min, extent) => Math.min(min, extent.from), Infinity),
    to: extents.reduce((max, extent) => Math.max(max, extent.to), -Infinity),
  };
}

function mergeNeighbours(slices: readonly BufferSlice[]): readonly BufferSlice[] {
  const merged: BufferSlice[] = [];
  const sorted = slices.toSorted((a, b) => a.buffer.id - b.buffer.id || a.offset - b.offset);
  for (const slice of sorted) {
    const last = merged.at(-1);
    if (last?.buffer !== slice.buffer || last.offset + last.size < slice.offset) merged.push(slice);
    else {
      const end = Math.max(last.offset + last.size, slice.offset + slice.size);
      merged[merged.length - 1] = { ...last, size: end - last.offset };
    }
  }
  return merged;
}

/** True if a slice is in dead memory. */
export function isDeadOnExit(
  deadOnExit: readonly BufferSlice[],
  { buffer, offset, size }: BufferSlice,
): boolean {
  return deadOnExit.some(
    (dead) => dead.buffer === buffer && dead.offset <= offset && offset + size <= dead.offset + dead.size,
  );
}
