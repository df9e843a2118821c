/** An array in device memory: a storage and the layout of its elements. Eager ops take and return these. */

import { type Dtype, dtypes } from "../ir/index.js";
import type { Runtime, Storage } from "../runtime/index.js";
import { isSameShape, type Shape, sizeOf } from "./shape.js";

export type Strides = readonly number[];

/** The layout of an array's elements. Strides are in elements. */
export interface Layout {
  readonly shape: Shape;
  readonly strides: Strides;
}

export interface DeviceArray extends Layout {
  readonly dtype: Dtype;
  /** Begins with the first element. An array without elements has no memory. */
  readonly storage: Storage | undefined;
}

/** The strides of a row-major layout. */
export function contiguousStrides(shape: Shape): Strides {
  const strides: number[] = new Array(shape.length);
  let stride = 1;
  for (let axis = shape.length - 1; axis >= 0; axis--) {
    strides[axis] = stride;
    stride *= shape[axis] ?? 1;
  }
  return strides;
}

/** The strides of images [N, C, H, W] or sequences [N, C, L] in memory as [N, H, W, C] or [N, L, C]. */
export function channelsLastStrides([rows = 1, channels = 1, ...positions]: Shape): Strides {
  const [row = 1, ...others] = contiguousStrides([rows, ...positions, channels]);
  return [row, 1, ...others.slice(0, -1)];
}

/** True for images or sequences that are dense in memory with their channels last, and not also row-major. */
export function isChannelsLast({ shape, strides }: Layout): boolean {
  if ((shape.length !== 4 && shape.length !== 3) || isContiguous({ shape, strides })) return false;
  const expected = channelsLastStrides(shape);
  return shape.every((size, axis) => size === 1 || strides[axis] === expected[axis]);
}

/** True for images or sequences, or a range of their channels, whose neighbours in memory are channels. */
export function hasChannelsLast({ shape, strides }: Layout): boolean {
  if (shape.length !== 4 && shape.length !== 3) return false;
  const [, channels = 1, ...positions] = shape;
  const isInnermost = strides[1] === 1 && strides.slice(2).every((stride) => stride >= channels);
  return channels > 1 && positions.some((size) => size > 1) && isInnermost;
}

/** True if the elements are contiguous in row-major order. The strides of axes of size 1 don't matter. */
export function isContiguous({ shape, strides }: Layout): boolean {
  let stride = 1;
  let isDense = true;
  for (let axis = shape.length - 1; axis >= 0; axis--) {
    const size = shape[axis] as number;
    if (size === 0) return true;
    if (size !== 1 && strides[axis] !== stride) isDense = false;
    stride *= size;
  }
  return isDense;
}

/**
 * Images and sequences stay channels-last: the result of an elementwise op does if an image of its shape is, whatever the layout of the
 * others, such as a target or a gradient that a pool spreads. A transposed matrix looks like a channels-last sequence. So a sequence stays
 * so only if no dense operand is row-major.
 */
export function keptStrides(operands: readonly (Layout | number)[], shape: Shape): Strides | undefined {
  if (shape.length !== 4 && shape.length !== 3) return undefined;
  let isLast = false;
  for (const operand of operands) {
    if (typeof operand === "number" || !isSameShape(operand.shape, shape)) continue;
    if (shape.length === 3 && isContiguous(operand)) return undefined;
    isLast ||= isChannelsLast(operand);
    if (isLast && shape.length === 4) break;
  }
  return isLast ? channelsLastStrides(shape) : undefined;
}

/** The number of elements in memory from the first to the last, inclusive. */
export function extentOf({ shape, strides }: Layout): number {
  let last = 0;
  for (let axis = 0; axis < shape.length; axis++) {
    const size = shape[axis] as number;
    if (size === 0) return 0;
    last += (size - 1) * (strides[axis] ?? 0);
  }
  return last + 1;
}

/** The strides of an array that is broadcast to a shape: 0 along broadcast axes. */
export function broadcastStrides({ shape, strides }: Layout, target: Shape): Strides {
  const added = target.length - shape.length;
  return target.map((size, axis) => {
    const sourceAxis = axis - added;
    return sourceAxis < 0 || (shape[sourceAxis] === 1 && size !== 1) ? 0 : (strides[sourceAxis] ?? 0);
  });
}

/** Merges axes to one; undefined if no single stride leads through all of their elements. */
export function mergeAxes({ shape, strides }: Layout): { size: number; stride: number } | undefined {
  let merged = { size: 1, stride: 1 };
  for (let axis = shape.length - 1; axis >= 0; axis--) {
    const [size = 1, stride = 0] = [shape[axis], strides[axis]];
    if (size === 1) continue;
    if (merged.size === 1) merged = { size, stride };
    else if (stride === merged.stride * merged.size)
      merged = { size: merged.size * size, stride: merged.stride };
    else return undefined;
  }
  return merged;
}

/** A view of a matrix with rows and columns exchanged. */
export function transposed(matrix: DeviceArray): DeviceArray {
  return { ...matrix, shape: matrix.shape.toReversed(), strides: matrix.strides.toReversed() };
}

/** Allocates step memory for a dense array. Default: contiguous. */
export function allocateArray(
  runtime: Runtime,
  shape: Shape,
  dtype: Dtype,
  label: string,
  strides: Strides = contiguousStrides(shape),
): DeviceArray {
  const bytes = sizeOf(shape) * dtypes[dtype].bytes;
  const storage = bytes > 0 ? runtime.arena.allocate(bytes, label) : undefined;
  return { shape, strides, dtype, storage };
}

/** A view of an array in another layout. `offset`: the view's first element, in elements from the array's first. */
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
  const view = isWhole ? storage : runtime.view(storage, offset * bytes, extent * bytes, label);
  return { shape, strides, dtype, storage: view };
}
