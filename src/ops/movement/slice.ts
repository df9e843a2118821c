/** slice and select: parts of an array as views, with the gradient that puts a part back into its place. */

import { HoldfastError } from "../../errors/index.js";
import { copyArray } from "../copy.js";
import type { Layout } from "../device-array.js";
import { arrayAt, type KernelOp, typeAt, type ViewOp } from "../op.js";
import { axisOf, badShape, formatShape, type Shape } from "../shape.js";
import { type Part, viewStrided } from "./part.js";
import { reshape } from "./reshape.js";

/**
 * What is taken of one axis: from `start` up to, but not with, `end`, every `step`-th element. Negative places count
 * from the end, and what lies outside is cut off, as in Python. What is left out or null means the axis' own end, or a
 * step of 1; null alone takes the whole axis.
 */
export type Range = readonly [start?: number | null, end?: number | null, step?: number | null] | null;

/** One range an axis, from the first axis on; the axes behind them are taken whole. */
export type SliceAttributes = { readonly ranges: readonly Range[] };

export const slice: ViewOp<SliceAttributes> = {
  kind: "view",
  name: "slice",
  infer(operands, { ranges }) {
    const { shape, dtype } = typeAt("slice", operands, 0);
    return [{ shape: resolveRanges(shape, ranges).map(({ count }) => count), dtype }];
  },
  view: (layout, { ranges }) => slicedView(layout, ranges),
  gradient: (rule) => [
    rule.apply(sliceGradient, [rule.upstream], {
      shape: rule.typeOf(0).shape,
      ranges: rule.attributes.ranges,
    }),
  ],
};

/** Zeros of a shape, with the operand in the place of a slice. */
export const sliceGradient: KernelOp<SliceAttributes & { readonly shape: Shape }> = {
  kind: "kernel",
  name: "sliceGradient",
  noGradient: "gradients of gradients are not recorded",
  infer: (operands, { shape }) => [{ shape, dtype: typeAt("sliceGradient", operands, 0).dtype }],
  lower(lowering, operands, [output], { ranges }) {
    if (!output?.storage) return;
    lowering.fill(output.storage, 0);
    const place = viewStrided(lowering, output, slicedView(output, ranges));
    copyArray(lowering, arrayAt(operands, 0), place);
  },
};

/** One index of an axis; the axis is gone from the result. */
export const select: ViewOp<{ readonly axis: number; readonly index: number }> = {
  kind: "view",
  name: "select",
  infer(operands, { axis, index }) {
    const { shape, dtype } = typeAt("select", operands, 0);
    const { place } = chooseOne(shape, axis, index);
    return [{ shape: shape.toSpliced(place, 1), dtype }];
  },
  view({ shape, strides }, { axis, index }) {
    const { place, from } = chooseOne(shape, axis, index);
    return {
      shape: shape.toSpliced(place, 1),
      strides: strides.toSpliced(place, 1),
      offset: from * (strides[place] ?? 0),
    };
  },
  gradient(rule) {
    const { shape } = rule.typeOf(0);
    const { place, from } = chooseOne(shape, rule.attributes.axis, rule.attributes.index);
    const thin = rule.apply(reshape, [rule.upstream], { shape: shape.with(place, 1) });
    const ranges = shape.map((_, axis): Range => (axis === place ? [from, from + 1] : null));
    return [rule.apply(sliceGradient, [thin], { shape, ranges })];
  },
};

interface ResolvedRange {
  readonly start: number;
  readonly step: number;
  readonly count: number;
}

function resolveRanges(shape: Shape, ranges: readonly Range[]): readonly ResolvedRange[] {
  if (ranges.length > shape.length) {
    throw badShape(
      "slice",
      `${ranges.length} ranges for shape ${formatShape(shape)}, which has ${shape.length} axes.`,
    );
  }
  return shape.map((size, axis) => resolveRange(size, axis, ranges[axis] ?? []));
}

function resolveRange(size: number, axis: number, range: NonNullable<Range>): ResolvedRange {
  const [start, end, step] = [range[0] ?? 0, range[1] ?? size, range[2] ?? 1];
  if (![start, end, step].every(Number.isSafeInteger) || step < 1) {
    throw badShape(
      "slice",
      `range [${range.map(String).join(", ")}] of axis ${axis}: start and end are whole numbers or null, and the step is 1 or more.`,
    );
  }
  const from = insideOf(size, start);
  return { start: from, step, count: Math.max(0, Math.ceil((insideOf(size, end) - from) / step)) };
}

function insideOf(size: number, place: number): number {
  return Math.min(size, Math.max(0, place < 0 ? place + size : place));
}

/** The elements that ranges take of a layout. */
export function slicedView({ shape, strides }: Layout, ranges: readonly Range[]): Part & { offset: number } {
  const resolved = resolveRanges(shape, ranges);
  return {
    shape: resolved.map(({ count }) => count),
    strides: resolved.map(({ step }, axis) => step * (strides[axis] ?? 0)),
    offset: resolved.reduce((sum, { start }, axis) => sum + start * (strides[axis] ?? 0), 0),
  };
}

function chooseOne(shape: Shape, axis: number, index: number): { place: number; from: number } {
  const place = axisOf("select", axis, shape.length);
  const size = shape[place] ?? 0;
  const from = index < 0 ? index + size : index;
  if (Number.isInteger(index) && from >= 0 && from < size) return { place, from };
  const fits = size === 0 ? "it is empty" : `it has ${-size} to ${size - 1}`;
  throw new HoldfastError(
    "BAD_INDEX",
    `select: index ${index} of axis ${place} of ${formatShape(shape)}; ${fits}.`,
    { numbers: { op: "select", index, size } },
  );
}
