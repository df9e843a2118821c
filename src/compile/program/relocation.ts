/** Buffers that are found elsewhere after a pass: inside another buffer, or in its stead. */

import { accessesOf, type Buffer, type BufferSlice, type Call, mapSlices } from "./program.js";

/** The new location of each moved buffer; that buffer may itself be moved. */
export type Relocations = ReadonlyMap<Buffer, { readonly buffer: Buffer; readonly offset: number }>;

export function relocateSlice(slice: BufferSlice, relocations: Relocations): BufferSlice {
  let { buffer, offset } = slice;
  for (let to = relocations.get(buffer); to; to = relocations.get(buffer)) {
    offset += to.offset;
    buffer = to.buffer;
  }
  return buffer === slice.buffer ? slice : { buffer, offset, size: slice.size };
}

/** The same calls on the new locations. */
export function relocateCalls(calls: readonly Call[], relocations: Relocations): readonly Call[] {
  if (relocations.size === 0) return calls;
  return calls.map((call) =>
    accessesOf(call).some(({ slice }) => relocations.has(slice.buffer))
      ? { ...call, work: mapSlices(call.work, (slice) => relocateSlice(slice, relocations)) }
      : call,
  );
}
