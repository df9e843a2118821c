/** Buffers that a pass replaces by another buffer, or by a slice of one. */

import { type Buffer, type BufferSlice, mapSlices, type Node, type Program } from "./program.js";

/** Where a relocated buffer begins. */
export interface Location {
  readonly buffer: Buffer;
  readonly offset: number;
}

/** The new location of each relocated buffer. That buffer may itself be relocated. */
export type Relocations = ReadonlyMap<Buffer, Location>;

export function relocateSlice(slice: BufferSlice, relocations: Relocations): BufferSlice {
  let { buffer, offset } = slice;
  for (let to = relocations.get(buffer); to; to = relocations.get(buffer)) {
    offset += to.offset;
    buffer = to.buffer;
  }
  return buffer === slice.buffer ? slice : { buffer, offset, size: slice.size };
}

/** Makes every call access the new locations. */
export function relocateCalls(program: Program, relocations: Relocations): void {
  const nodes = new Set<Node>();
  for (const buffer of relocations.keys()) {
    const { writers, readers } = program.uses(buffer);
    for (const node of [...writers, ...readers]) nodes.add(node);
  }
  for (const node of nodes) {
    const work = mapSlices(node.call.work, (slice) => relocateSlice(slice, relocations));
    program.replace(node, { ...node.call, work });
  }
}
