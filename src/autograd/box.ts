/** Boxes: elements of an array that every axis selects by a range with a step. Views of gradients are boxes. */

import type { Layout, StridedView } from "../ops/index.js";

/** `count` indices of an axis, from `start` on. The step is 1 if the range has fewer than two. */
export interface BoxRange {
  readonly start: number;
  readonly step: number;
  readonly count: number;
}

/** One range for each axis. A box without elements has an empty range. */
export type Box = readonly BoxRange[];

/** More boxes are not tracked: comparing a new box with all of them would cost more than the zeros that it saves. */
const maxBoxes = 64;

export function wholeBox(shape: readonly number[]): Box {
  return shape.map((size) => range(0, 1, size));
}

export function isEmpty(box: Box): boolean {
  return box.some(({ count }) => count === 0);
}

/** The box as a view of an array with this layout. */
export function viewOfBox(box: Box, { strides }: Layout): StridedView {
  return {
    shape: box.map(({ count }) => count),
    strides: box.map(({ step }, axis) => step * (strides[axis] ?? 0)),
    offset: box.reduce((offset, { start }, axis) => offset + start * (strides[axis] ?? 0), 0),
  };
}

/** The elements of a view of a contiguous array as a box; undefined if the view has an element twice, or they are not a box. */
export function boxOfView(shape: readonly number[], view: StridedView): Box | undefined {
  if (view.shape.includes(0) || shape.includes(0)) {
    // An array without axes has one box only, with its element.
    return shape.length > 0 ? shape.map(() => range(0, 1, 0)) : undefined;
  }
  const box: BoxRange[] = new Array(shape.length);
  const axes = mergedAxes(view);
  if (axes[0]?.stride === 0) return undefined;
  let rest = axes.shift();
  let stride = 1;
  let offset = view.offset ?? 0;
  for (let axis = shape.length - 1; axis >= 0; axis--) {
    const size = shape[axis] ?? 1;
    const start = offset % size;
    offset = (offset - start) / size;
    box[axis] = range(start, 1, 1);
    if (rest && rest.stride < stride * size) {
      const step = rest.stride / stride;
      if (!Number.isInteger(step)) return undefined;
      if (start + (rest.size - 1) * step < size) {
        box[axis] = range(start, step, rest.size);
        rest = axes.shift();
      } else {
        // The view goes on along the next axis, if it leaves this one in step.
        const count = size / step;
        if (!Number.isInteger(count) || start >= step || rest.size % count !== 0) return undefined;
        box[axis] = range(start, step, count);
        rest = { size: rest.size / count, stride: stride * size };
      }
    }
    stride *= size;
  }
  return rest ? undefined : box;
}

/** The axes of a view by ascending stride, without those of size 1. Axes that continue each other are one. */
function mergedAxes({ shape, strides }: Layout): { readonly size: number; readonly stride: number }[] {
  const axes = shape.map((size, axis) => ({ size, stride: strides[axis] ?? 0 }));
  const merged: { size: number; stride: number }[] = [];
  for (const axis of axes.filter(({ size }) => size > 1).sort((a, b) => a.stride - b.stride)) {
    const last = merged.at(-1);
    if (last && axis.stride === last.stride * last.size) last.size *= axis.size;
    else merged.push({ ...axis });
  }
  return merged;
}

/** Elements of a box: those in a list of disjoint boxes, and the others. */
export interface SplitBox {
  readonly inside: readonly Box[];
  /** The rest of the list. */
  readonly outside: readonly Box[];
}

/** Splits a list of disjoint boxes into the parts inside a box and the parts outside; undefined if it can't compare them. */
export function splitBoxes(boxes: readonly Box[], box: Box): SplitBox | undefined {
  const inside: Box[] = [];
  const outside: Box[] = [];
  for (const other of boxes) {
    const split = splitBox(other, box);
    if (!split) return undefined;
    if (split.common) inside.push(split.common);
    outside.push(...split.rest);
    if (inside.length + outside.length > maxBoxes) return undefined;
  }
  return { inside, outside };
}

/** The elements of one box that another has, and disjoint boxes with the rest; undefined if it can't compare them. */
function splitBox(
  box: Box,
  other: Box,
): { readonly common: Box | undefined; readonly rest: readonly Box[] } | undefined {
  const rest: Box[] = [];
  let common = box;
  for (const [axis, along] of box.entries()) {
    const split = splitRange(along, other[axis] ?? along);
    if (!split) return undefined;
    if (split.common.count === 0) return { common: undefined, rest: [box] };
    for (const piece of split.rest) rest.push(common.with(axis, piece));
    common = common.with(axis, split.common);
  }
  return { common, rest };
}

interface SplitRange {
  readonly common: BoxRange;
  readonly rest: readonly BoxRange[];
}

/** The indices of `a` that are in `b`, and the others; undefined if neither step is a multiple of the other. */
function splitRange(a: BoxRange, b: BoxRange): SplitRange | undefined {
  if (b.count === 0 || a.count === 0) return { common: range(0, 1, 0), rest: [a] };
  if (a.count === 1) {
    const isIn = a.start >= b.start && a.start <= lastOf(b) && (a.start - b.start) % b.step === 0;
    return isIn ? { common: a, rest: [] } : { common: range(0, 1, 0), rest: [a] };
  }
  if (b.count === 1) return cut({ ...a }, { ...b, step: a.step });
  if (a.step % b.step === 0) {
    return (a.start - b.start) % b.step === 0 ? cut(a, b) : { common: range(0, 1, 0), rest: [a] };
  }
  if (b.step % a.step !== 0 || b.step / a.step > maxBoxes) return undefined;
  // Only one of the ranges with b's step that a consists of can have b's indices.
  const classes = Array.from({ length: Math.min(a.count, b.step / a.step) }, (_, index) => {
    const start = a.start + index * a.step;
    return range(start, b.step, Math.floor((lastOf(a) - start) / b.step) + 1);
  });
  const splits = classes.map((along) => ({ along, split: splitRange(along, b) }));
  const common = splits.find(({ split }) => split && split.common.count > 0)?.split?.common;
  return {
    common: common ?? range(0, 1, 0),
    rest: splits.flatMap(({ along, split }) => split?.rest ?? [along]),
  };
}

/** The indices of `a` from b's first to its last, and those before and after. */
function cut(a: BoxRange, b: BoxRange): SplitRange {
  const before = clamp(Math.ceil((b.start - a.start) / a.step), a.count);
  const until = clamp(Math.floor((lastOf(b) - a.start) / a.step) + 1, a.count);
  if (b.count === 1 && (b.start - a.start) % a.step !== 0) return { common: range(0, 1, 0), rest: [a] };
  const piece = (from: number, to: number): BoxRange => range(a.start + from * a.step, a.step, to - from);
  return {
    common: piece(before, Math.max(before, until)),
    rest: [piece(0, before), piece(Math.max(before, until), a.count)].filter(({ count }) => count > 0),
  };
}

function range(start: number, step: number, count: number): BoxRange {
  return { start, step: count > 1 ? step : 1, count };
}

function lastOf({ start, step, count }: BoxRange): number {
  return start + (count - 1) * step;
}

function clamp(value: number, max: number): number {
  return Math.min(max, Math.max(0, value));
}
