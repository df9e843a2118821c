/** Adds into an array at places that an index tells, in a fixed order: gradients of selections, and scatterAdd. */

import { dtypes } from "../../ir/index.js";
import type { ScanDtype } from "../../kernels/index.js";
import type { Storage } from "../../runtime/index.js";
import { copyArray } from "../copy.js";
import { type DeviceArray, isContiguous } from "../device-array.js";
import type { Lowering } from "../op.js";
import { type Shape, sizeOf } from "../shape.js";
import { asIndexList } from "./index-list.js";

export interface Scatter {
  readonly target: DeviceArray;
  readonly axis: number;
  /** As many entries as the source has along the axis for all of the rest, or one for each of the source's elements. */
  readonly index: DeviceArray;
  readonly isIndexShared: boolean;
  /** Of the target's sizes, but for the axis. */
  readonly source: DeviceArray;
}

/** Half floats and small integers are added up in their wider type, and narrowed once. */
export function lowerScatter(lowering: Lowering, scatter: Scatter): void {
  const { axis, isIndexShared, target } = scatter;
  const dtype: ScanDtype = dtypes[target.dtype].compute;
  const sum = asWalked(lowering, target, dtype);
  const source = asWalked(lowering, scatter.source, dtype, target.storage);
  const index = asIndexList(lowering, apartFrom(lowering, scatter.index, target.storage));
  if (!sum.storage || !source.storage || !index.storage) return;
  lowering.scatterAdd({
    dtype,
    ...cutAt(target.shape, axis),
    count: source.shape[axis] ?? 0,
    index: index.storage,
    isIndexShared,
    source: source.storage,
    target: sum.storage,
  });
  if (sum !== target) copyArray(lowering, sum, target);
}

function cutAt(shape: Shape, axis: number): { outer: number; length: number; inner: number } {
  return {
    outer: sizeOf(shape.slice(0, axis)),
    length: shape[axis] ?? 0,
    inner: sizeOf(shape.slice(axis + 1)),
  };
}

/** Contiguous, of this dtype, and not in the memory that is written to: itself, or a copy. */
function asWalked(lowering: Lowering, array: DeviceArray, dtype: ScanDtype, written?: Storage): DeviceArray {
  if (array.dtype === dtype && isContiguous(array)) return apartFrom(lowering, array, written);
  return copyOf(lowering, array, dtype);
}

/** An op in place may be given its own target once more. */
function apartFrom(lowering: Lowering, array: DeviceArray, written: Storage | undefined): DeviceArray {
  if (!array.storage || !written) return array;
  const [a, b] = [array.storage.span, written.span];
  const isApart = a.address + a.size <= b.address || b.address + b.size <= a.address;
  return isApart ? array : copyOf(lowering, array, array.dtype);
}

function copyOf(lowering: Lowering, array: DeviceArray, dtype: DeviceArray["dtype"]): DeviceArray {
  const copy = lowering.scratchArray(array.shape, dtype);
  copyArray(lowering, array, copy);
  return copy;
}
