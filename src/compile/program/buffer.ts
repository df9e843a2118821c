/** Buffers and slices: the memory that calls work on. */

import type { RowKernel } from "../../ir/index.js";
import type { Storage } from "../../runtime/index.js";

/** Bytes with one owner: the result of an op, its scratch memory, or a persistent region. */
export interface Buffer {
  readonly id: number;
  readonly bytes: number;
  /** The op that made it, or the tensor's name. */
  readonly label: string;
  /** Its memory, if it is persistent; step memory gets its offset from the plan. */
  readonly storage?: Storage;
  /** Set if it is a weight copy: what it converts. */
  readonly copyOf?: ConvertedWeights;
}

/** Persistent memory that a weight copy has in another dtype, element by element. */
export interface ConvertedWeights {
  readonly source: BufferSlice;
  /** The kernel that converts it. */
  readonly kernel: RowKernel;
  /** Where the copy of its first element begins in the buffer. The last element's copy ends the buffer. */
  readonly offset: number;
}

/** Some of a buffer's bytes. */
export interface BufferSlice {
  readonly buffer: Buffer;
  readonly offset: number;
  readonly size: number;
}

export function isSameSlice(a: BufferSlice, b: BufferSlice): boolean {
  return a.buffer === b.buffer && a.offset === b.offset && a.size === b.size;
}
