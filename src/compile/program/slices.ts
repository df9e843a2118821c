/** Alias analysis: the bytes of slices in a form in which any two can be compared. */

import type { Buffer, BufferSlice } from "./buffer.js";

/** The bytes [from, to) of a step buffer, or of device memory for persistent buffers. */
export interface Extent {
  readonly space: Buffer | typeof device;
  readonly from: number;
  readonly to: number;
}

/** Two persistent buffers may share bytes, such as a region and a storage in it: they are compared by address. */
export const device: unique symbol = Symbol("device memory");

export function extentOf({ buffer, offset, size }: BufferSlice): Extent {
  const from = offset + (buffer.storage?.span.address ?? 0);
  return { space: buffer.storage ? device : buffer, from, to: from + size };
}

export function areDisjoint(a: Extent, b: Extent): boolean {
  return a.space !== b.space || a.to <= b.from || b.to <= a.from;
}

/** True if two slices share no byte. */
export function areSeparate(a: BufferSlice, b: BufferSlice): boolean {
  return areDisjoint(extentOf(a), extentOf(b));
}

/** The address of an extent's first byte, as text. */
export function placeOf({ space, from }: Extent): string {
  return space === device ? `@${from}` : `${space.id}+${from}`;
}
