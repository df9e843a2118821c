/**
 * The operands of batched calls. The members' slices need a common stride: slices of one buffer have one or not; step buffers of their own
 * become slices of a new buffer.
 */

import { alignment } from "../../runtime/index.js";
import { alignUp } from "../../units/index.js";
import type { Buffer, BufferSlice, Program } from "../program/program.js";
import type { Location } from "../program/relocation.js";

export interface BatchStride {
  readonly strideBytes: number;
  /** True if the members' step buffers become slices of one buffer. */
  readonly isMoved: boolean;
}

/** The stride from one member's slice to the next; undefined if there is none that is a multiple of the element's size. */
export function findBatchStride(
  slices: readonly BufferSlice[],
  elementBytes: number,
): BatchStride | undefined {
  const [first, second] = slices;
  if (!first || !second) return undefined;
  if (slices.every(({ buffer }) => buffer === first.buffer)) {
    const strideBytes = second.offset - first.offset;
    const isStrided = slices.every(({ offset }, index) => offset === first.offset + index * strideBytes);
    return isStrided && strideBytes >= 0 && strideBytes % elementBytes === 0
      ? { strideBytes, isMoved: false }
      : undefined;
  }
  const areOwn = new Set(slices.map(({ buffer }) => buffer)).size === slices.length;
  const areWhole = slices.every(
    ({ buffer, offset, size }) => !buffer.storage && offset === 0 && size === buffer.bytes,
  );
  return areOwn && areWhole ? { strideBytes: alignUp(first.size, alignment), isMoved: true } : undefined;
}

/** The slice that spans all members; the new locations of buffers that move are added to `moved`. */
export function batchSlice(
  program: Program,
  slices: readonly BufferSlice[],
  { strideBytes, isMoved }: BatchStride,
  moved: Map<Buffer, Location>,
): BufferSlice {
  const [first] = slices as [BufferSlice];
  const size = (slices.length - 1) * strideBytes + first.size;
  if (!isMoved) return { ...first, size };
  const buffer = program.makeBuffer(size, first.buffer.label);
  for (const [index, slice] of slices.entries())
    moved.set(slice.buffer, { buffer, offset: index * strideBytes });
  return { buffer, offset: 0, size };
}
