/** An array in device memory: a storage, and how the elements lie in it. What eager ops take and give. */

import { type Dtype, dtypes } from "../ir/index.js";
import type { Runtime, Storage } from "../runtime/index.js";
import { type Shape, sizeOf } from "./shape.js";

export type Strides = readonly number[];

/** How an array's elements lie: steps in elements, from the first one on. */
export interface Layout {
  readonly shape: Shape;
  readonly strides: Strides;
}

export interface DeviceArray extends Layout {
  readonly dtype: Dtype;
  /** Begins with the first element. An array of no elements has no memory. */
  readonly storage: Storage | undefined;
}

/** Row by row, the last axis fastest. */
export function contiguousStrides(shape: Shape): Strides {
  const strides: number[] = new Array(shape.length);
  let step = 1;
  for (let axis = shape.length - 1; axis >= 0; axis--) {
    strides[axis] = step;
    step *= shape[axis] ?? 1;
  }
  return strides;
}

/** Do the elements lie one behind the other in the shape's order? The steps of axes of size 1 don't matter. */
export function isContiguous({ shape, strides }: Layout): boolean {
  let step = 1;
  let fits = true;
  for (let axis = shape.length - 1; axis >= 0; axis--) {
    const size = shape[axis] as number;
    if (size === 0) return true;
    if (size !== 1 && strides[axis] !== step) fits = false;
    step *= size;
  }
  return fits;
}

/** How many elements lie between the first and the last, both counted. */
export function extentOf({ shape, strides }: Layout): number {
  let last = 0;
  for (let axis = 0; axis < shape.length; axis++) {
    const size = shape[axis] as number;
    if (size === 0) return 0;
    last += (size - 1) * (strides[axis] ?? 0);
  }
  return last + 1;
}

/** Steps through an array as if it had this shape: 0 along every axis that it is stretched over. */
export function broadcastStrides({ shape, strides }: Layout, target: Shape): Strides {
  const added = target.length - shape.length;
  return target.map((size, axis) => {
    const own = axis - added;
    return own < 0 || (shape[own] === 1 && size !== 1) ? 0 : (strides[own] ?? 0);
  });
}

/** Several axes as one, where each steps over the whole of the next. */
export function joinAxes({ shape, strides }: Layout): { size: number; stride: number } | undefined {
  let joined = { size: 1, stride: 1 };
  for (let axis = shape.length - 1; axis >= 0; axis--) {
    const [size = 1, stride = 0] = [shape[axis], strides[axis]];
    if (size === 1) continue;
    if (joined.size === 1) joined = { size, stride };
    else if (stride === joined.stride * joined.size)
      joined = { size: joined.size * size, stride: joined.stride };
    else return undefined;
  }
  return joined;
}

/** A matrix seen with rows and columns exchanged. */
export function transposed(matrix: DeviceArray): DeviceArray {
  return { ...matrix, shape: matrix.shape.toReversed(), strides: matrix.strides.toReversed() };
}

/** New step memory for an array, in contiguous order. */
export function allocateArray(runtime: Runtime, shape: Shape, dtype: Dtype, label: string): DeviceArray {
  const bytes = sizeOf(shape) * dtypes[dtype].bytes;
  const storage = bytes > 0 ? runtime.arena.allocate(bytes, label) : undefined;
  return { shape, strides: contiguousStrides(shape), dtype, storage };
}

/** The same bytes seen in another layout, which begins `offset` elements behind the array's first. */
export function viewArray(
  runtime: Runtime,
  array: DeviceArray,
  { shape, strides, offset = 0 }: Layout & { readonly offset?: number },
  label: string,
): DeviceArray {
  const { dtype, storage } = array;
  const extent = extentOf({ shape, strides });
  if (!storage || extent === 0) return { shape, strides, dtype, storage: undefined };
  const { bytes } = dtypes[dtype];
  const isWhole = offset === 0 && extent * bytes === storage.span.size;
  const part = isWhole ? storage : runtime.view(storage, offset * bytes, extent * bytes, label);
  return { shape, strides, dtype, storage: part };
}
