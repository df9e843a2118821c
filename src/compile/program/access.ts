/** How a call accesses memory. */

import type { Parameter } from "../../driver/index.js";
import type { Iteration } from "../../ir/index.js";
import type { BufferSlice } from "./buffer.js";

/** All reads of a call come before its writes. A write may leave gaps: bytes of the slice that keep their value. */
export interface Access {
  readonly slice: BufferSlice;
  readonly reads: boolean;
  readonly writes: boolean;
  /** The bytes of the slice that are read, if not all of them are. */
  readonly visits?: Visits;
}

/** The elements of an operand that an iteration visits; the first one is at the start of the operand's slice. */
export interface Visits {
  readonly iteration: Iteration;
  readonly operand: number;
  readonly elementBytes: number;
}

export function accessOf(slice: BufferSlice, parameter: Parameter): Access {
  return { slice, reads: parameter === "in" || parameter === "inout", writes: parameter !== "in" };
}
