/** Which bytes a part of a buffer is, so that any two can be compared: persistent ones by their addresses. */

import type { Buffer, BufferSlice } from "./program.js";

/** Bytes from one to before another: of a buffer of the step, or of the device, where what is persistent lies. */
export interface Extent {
  readonly space: Buffer | typeof device;
  readonly from: number;
  readonly to: number;
}

/** Two persistent buffers may share bytes, as a region and a storage of it do: they are told apart by address alone. */
export const device: unique symbol = Symbol("device memory");

export function extentOf({ buffer, offset, size }: BufferSlice): Extent {
  const from = offset + (buffer.storage?.span.address ?? 0);
  return { space: buffer.storage ? device : buffer, from, to: from + size };
}

export function areDisjoint(a: Extent, b: Extent): boolean {
  return a.space !== b.space || a.to <= b.from || b.to <= a.from;
}

/** The place of an extent's first byte, as text. */
export function placeOf({ space, from }: Extent): string {
  return space === device ? `@${from}` : `${space.id}+${from}`;
}
