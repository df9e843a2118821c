/** Parts of an array while an op is lowered: some of its elements, seen in their own layout. */

import { dtypes } from "../../ir/index.js";
import { type DeviceArray, extentOf, type Layout } from "../device-array.js";
import type { Lowering } from "../op.js";

/** A layout over an array's elements, from `offset` elements behind its first one on. */
export type Part = Layout & { readonly offset?: number };

/** The part as an array. It ends with the op. */
export function viewStrided(lowering: Lowering, array: DeviceArray, part: Part): DeviceArray {
  const { shape, strides, offset = 0 } = part;
  const extent = extentOf(part);
  const { dtype, storage } = array;
  if (!storage || extent === 0) return { shape, strides, dtype, storage: undefined };
  const { bytes } = dtypes[dtype];
  return { shape, strides, dtype, storage: lowering.view(storage, offset * bytes, extent * bytes) };
}
