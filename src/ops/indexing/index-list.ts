/** Index lists for kernels that need contiguous i32. */

import { copyArray } from "../copy.js";
import { type DeviceArray, isContiguous } from "../device-array.js";
import type { Lowering } from "../op.js";
import { sizeOf } from "../shape.js";

/** The index as contiguous i32: itself, or a copy that lives until the op ends. */
export function asIndexList(lowering: Lowering, index: DeviceArray): DeviceArray {
  if (index.dtype === "i32" && isContiguous(index)) return index;
  const copy = lowering.scratchArray(index.shape, "i32");
  if (sizeOf(index.shape) > 0) copyArray(lowering, index, copy);
  return copy;
}
