/** Index lists for kernels that need contiguous i32. */

import { iterateElements, type RowKernel, term } from "../../ir/index.js";
import { copyArray } from "../copy.js";
import { type DeviceArray, isContiguous } from "../device-array.js";
import type { Lowering } from "../op.js";
import { sizeOf } from "../shape.js";

/** The index as contiguous i32: itself, or a copy that lives until the op ends. */
export function asIndexList(lowering: Lowering, index: DeviceArray): DeviceArray {
  if (index.dtype === "i32" && isContiguous(index)) return index;
  const copy = lowering.scratchArray(index.shape, "i32");
  if (sizeOf(index.shape) === 0 || !index.storage || !copy.storage) return copy;
  if (index.dtype !== "i64") copyArray(lowering, index, copy);
  else {
    lowering.row({
      kernel: narrowing,
      iteration: iterateElements(index.shape, [index.strides, copy.strides]),
      operands: [index.storage, copy.storage],
    });
  }
  return copy;
}

/** Indices of 64 bits as i32, saturated: one outside of the range of i32 is outside of every axis. */
const narrowing: RowKernel = {
  name: "i64 index to i32",
  inputs: ["i64"],
  outputs: [{ dtype: "i32", per: "element" }],
  scalars: [],
  stages: [{ kind: "store", output: 0, value: term.index(0, "i64") }],
};
