/** Adds to elements at positions from an index, in a fixed order: the gradients of selections, and scatterAdd. */

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
  /** One index for each position of the source along the axis if shared, otherwise one for each of the source's elements. */
  readonly index: DeviceArray;
  readonly isIndexShared: boolean;
  /** Has the target's sizes, except along the axis. */
  readonly source: DeviceArray;
  /** The sums start at zero, not at the target's values. */
  readonly overwrites?: boolean;
}

/** Half floats and small integers are accumulated in a wider type, and narrowed once. */
export function lowerScatter(lowering: Lowering, scatter: Scatter): void {
  const { axis, isIndexShared, target, overwrites = false } = scatter;
  const dtype: ScanDtype = dtypes[target.dtype].compute;
  const isDirect = target.dtype === dtype && isContiguous(target);
  const sum = isDirect
    ? target
    : overwrites
      ? lowering.scratchArray(target.shape, dtype)
      : copyOf(lowering, target, dtype);
  const source = scatterOperand(lowering, scatter.source, dtype, target.storage);
  const index = asIndexList(lowering, disjointFrom(lowering, scatter.index, target.storage));
  if (!sum.storage || !target.storage) return;
  if (!source.storage || !index.storage) {
    if (overwrites) lowering.fill(target.storage, 0);
    return;
  }
  lowering.scatterAdd({
    dtype,
    ...splitAtAxis(target.shape, axis),
    count: source.shape[axis] ?? 0,
    index: index.storage,
    isIndexShared,
    source: source.storage,
    target: sum.storage,
    overwrites,
  });
  if (sum !== target) copyArray(lowering, sum, target);
}

function splitAtAxis(shape: Shape, axis: number): { outer: number; length: number; inner: number } {
  return {
    outer: sizeOf(shape.slice(0, axis)),
    length: shape[axis] ?? 0,
    inner: sizeOf(shape.slice(axis + 1)),
  };
}

/** The array if it is contiguous, of this dtype, and disjoint from the written memory; otherwise a copy. */
function scatterOperand(
  lowering: Lowering,
  array: DeviceArray,
  dtype: ScanDtype,
  written?: Storage,
): DeviceArray {
  if (array.dtype === dtype && isContiguous(array)) return disjointFrom(lowering, array, written);
  return copyOf(lowering, array, dtype);
}

/** The array, or a copy if it overlaps the written memory: an in-place op may have its target as a further operand. */
function disjointFrom(lowering: Lowering, array: DeviceArray, written: Storage | undefined): DeviceArray {
  if (!array.storage || !written) return array;
  const [a, b] = [array.storage.span, written.span];
  const isDisjoint = a.address + a.size <= b.address || b.address + b.size <= a.address;
  return isDisjoint ? array : copyOf(lowering, array, array.dtype);
}

function copyOf(lowering: Lowering, array: DeviceArray, dtype: DeviceArray["dtype"]): DeviceArray {
  const copy = lowering.scratchArray(array.shape, dtype);
  copyArray(lowering, array, copy);
  return copy;
}
