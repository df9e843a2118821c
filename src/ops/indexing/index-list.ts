/** An index as the kernels that take lists of indices want it. */

import { copyArray } from "../copy.js";
import { type DeviceArray, isContiguous } from "../device-array.js";
import type { Lowering } from "../op.js";
import { sizeOf } from "../shape.js";

/** The index as contiguous i32: itself, or a copy that ends with the op. */
export function asIndexList(lowering: Lowering, index: DeviceArray): DeviceArray {
  if (index.dtype === "i32" && isContiguous(index)) return index;
  const copy = lowering.scratchArray(index.shape, "i32");
  if (sizeOf(index.shape) > 0) copyArray(lowering, index, copy);
  return copy;
}
