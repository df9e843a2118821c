/** Where one array is in another one of the same memory: a box of its axes. A write to a view then is a new value of the whole. */

import { dtypes } from "../ir/index.js";
import { type DeviceArray, isContiguous, sizeOf } from "../ops/index.js";
import { ownerOf } from "../runtime/index.js";

/** `starts`, `ends` and `sizes` have a number for each axis of the whole. */
export interface Region {
  readonly starts: readonly number[];
  readonly ends: readonly number[];
  readonly sizes: readonly number[];
  /** For each axis of the part, the axis of the whole along which it goes; −1 for an axis of size 1 without one. */
  readonly order: readonly number[];
}

/** The region of the part; undefined if it is no box, or not in the whole. */
export function regionOf(part: DeviceArray, whole: DeviceArray): Region | undefined {
  if (!part.storage || !whole.storage || part.dtype !== whole.dtype || sizeOf(part.shape) === 0)
    return undefined;
  // Memory of a dead array may have another one by now.
  if (ownerOf(part.storage) !== ownerOf(whole.storage)) return undefined;
  const bytes = dtypes[part.dtype].bytes;
  const offset = (part.storage.span.address - whole.storage.span.address) / bytes;
  if (offset === 0 && isReshaped(part, whole)) return everything(part, whole);
  const starts = startsAt(offset, whole);
  if (!starts) return undefined;
  const sizes = whole.shape.map(() => 1);
  const order: number[] = [];
  for (const [axis, size] of part.shape.entries()) {
    const along =
      size === 1
        ? -1
        : whole.shape.findIndex((length, other) => length > 1 && whole.strides[other] === part.strides[axis]);
    if (size > 1 && (along < 0 || order.includes(along))) return undefined;
    order.push(along);
    if (along >= 0) sizes[along] = size;
  }
  const ends = starts.map((start, axis) => start + (sizes[axis] ?? 1));
  return ends.every((end, axis) => end <= (whole.shape[axis] ?? 1))
    ? { starts, ends, sizes, order }
    : undefined;
}

/** All elements in the same order, in another shape. */
function isReshaped(part: DeviceArray, whole: DeviceArray): boolean {
  return isContiguous(part) && isContiguous(whole) && sizeOf(part.shape) === sizeOf(whole.shape);
}

function everything({ shape: partShape }: DeviceArray, { shape }: DeviceArray): Region {
  return { starts: shape.map(() => 0), ends: shape, sizes: shape, order: partShape.map(() => -1) };
}

/** The coordinates of the element with this offset. */
function startsAt(offset: number, { shape, strides }: DeviceArray): readonly number[] | undefined {
  const starts = shape.map(() => 0);
  const axes = [...shape.keys()]
    .filter((axis) => (shape[axis] ?? 1) > 1)
    .sort((a, b) => (strides[b] ?? 0) - (strides[a] ?? 0));
  let rest = offset;
  for (const axis of axes) {
    const stride = strides[axis] ?? 0;
    if (stride <= 0) return undefined;
    starts[axis] = Math.floor(rest / stride);
    rest -= (starts[axis] ?? 0) * stride;
  }
  const isInside = rest === 0 && starts.every((start, axis) => start >= 0 && start < (shape[axis] ?? 1));
  return isInside ? starts : undefined;
}
