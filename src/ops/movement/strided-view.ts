/** Strided views of arrays within a lowering. */

import { dtypes } from "../../ir/index.js";
import { type DeviceArray, extentOf, type Layout } from "../device-array.js";
import type { Lowering } from "../op.js";

/** A layout over an array's elements. `offset`: the first element; default: 0. */
export type StridedView = Layout & { readonly offset?: number };

/** The view as an array. It lives until the op ends. */
export function viewStrided(lowering: Lowering, array: DeviceArray, view: StridedView): DeviceArray {
  const { shape, strides, offset = 0 } = view;
  const extent = extentOf(view);
  const { dtype, storage } = array;
  if (!storage || extent === 0) return { shape, strides, dtype, storage: undefined };
  const { bytes } = dtypes[dtype];
  return { shape, strides, dtype, storage: lowering.view(storage, offset * bytes, extent * bytes) };
}
