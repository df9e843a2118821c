/**
 * The gradient of windows is a sum over the windows of each element. It is computed offset by offset: the first offset at an element
 * writes it, later offsets add to it, and only elements without a window are set to zero.
 */

import type { DeviceArray } from "../device-array.js";
import { type Range, slicedView } from "../movement/slice.js";
import { viewStrided } from "../movement/strided-view.js";
import type { Lowering } from "../op.js";
import { fillWith } from "../reduction/reduce.js";
import type { Windows } from "./geometry.js";

/** True if an element can be in several windows. */
export function areOverlapping({ kernel, stride, dilation }: Windows): boolean {
  return kernel.some((size, axis) => size > (stride[axis] ?? 1)) || dilation.some((step) => step > 1);
}

/** True if no earlier offset has an element of this one: it may overwrite them. */
export function isFirstOffset({ stride, dilation }: Windows, offset: readonly number[]): boolean {
  return dilation.every((step) => step === 1) && offset.every((at, axis) => at < (stride[axis] ?? 1));
}

/** Sets the elements to zero that no first offset has. */
export function zeroOtherElements(lowering: Lowering, sum: DeviceArray, windows: Windows): void {
  if (!sum.storage) return;
  const { kernel, stride, dilation, padding, count } = windows;
  const hasHoles =
    kernel.some((size, axis) => size < (stride[axis] ?? 1)) || dilation.some((step) => step > 1);
  if (hasHoles) {
    lowering.fill(sum.storage, 0);
    return;
  }
  const batchRank = sum.shape.length - kernel.length;
  const batch = new Array<Range>(batchRank).fill(null);
  const ends = count.map((windowCount, axis) =>
    Math.max(0, windowCount * (stride[axis] ?? 1) - (padding[axis] ?? 0)),
  );
  for (const [axis, end] of ends.entries()) {
    if (end >= (sum.shape[batchRank + axis] ?? 0)) continue;
    const ranges = ends.slice(0, axis).map((earlier): Range => [0, earlier]);
    fillWith(lowering, viewStrided(lowering, sum, slicedView(sum, [...batch, ...ranges, [end]])), 0);
  }
}
