/** slice and select: views of some elements of an array. */

import { HoldfastError } from "../../errors/index.js";
import { copyArray } from "../copy.js";
import type { Layout } from "../device-array.js";
import { arrayAt, type GradientRule, type Gradients, type KernelOp, typeAt, type ViewOp } from "../op.js";
import { axisOf, badShape, formatShape, type Shape } from "../shape.js";
import { reshape } from "./reshape.js";
import { type StridedView, viewStrided } from "./strided-view.js";

/**
 * The selected elements of one axis: every `step`-th element from `start` up to but excluding `end`. Negative indices count from the
 * end, and indices outside the axis are clamped, as in Python. Defaults, also for null: the whole axis, and a step of 1. A range of
 * null selects the whole axis.
 */
export type Range = readonly [start?: number | null, end?: number | null, step?: number | null] | null;

/** One range for each axis, from the first axis on. Axes without a range are selected whole. */
export type SliceAttributes = { readonly ranges: readonly Range[] };

export const slice: ViewOp<SliceAttributes> = {
  kind: "view",
  name: "slice",
  infer(operands, { ranges }) {
    const { shape, dtype } = typeAt("slice", operands, 0);
    return [{ shape: resolveRanges(shape, ranges).map(({ count }) => count), dtype }];
  },
  view: (layout, { ranges }) => slicedView(layout, ranges),
  gradient: (rule) => {
    const { shape } = rule.typeOf(0);
    const { ranges } = rule.attributes;
    return rule.isRecorded
      ? [rule.apply(placeInZeros, [rule.upstream], { shape, ranges })]
      : wholeGradient(rule);
  },
};

/** Zeros of a shape, with the operand in the slice that the ranges select: the gradient of a slice, if it is recorded. */
const placeInZeros: KernelOp<SliceAttributes & { readonly shape: Shape }> = {
  kind: "kernel",
  name: "sliceGradient",
  infer: (operands, { shape }) => [{ shape, dtype: typeAt("sliceGradient", operands, 0).dtype }],
  gradient: ({ apply, upstream, attributes: { ranges } }) => [apply(slice, [upstream], { ranges })],
  lower(lowering, operands, [output], { ranges }) {
    if (!output?.storage) return;
    lowering.fill(output.storage, 0);
    copyArray(lowering, arrayAt(operands, 0), viewStrided(lowering, output, slicedView(output, ranges)));
  },
};

/** The gradient of a view with all elements in order. Backward writes the gradient of a part to its place itself. */
function wholeGradient<V, A>(rule: GradientRule<V, A>): Gradients<V> {
  return [rule.apply(reshape, [rule.upstream], { shape: rule.typeOf(0).shape })];
}

/** The elements at one index of an axis, which the result does not have. */
export const select: ViewOp<{ readonly axis: number; readonly index: number }> = {
  kind: "view",
  name: "select",
  infer(operands, { axis, index }) {
    const { shape, dtype } = typeAt("select", operands, 0);
    const { resolvedAxis } = resolveIndex(shape, axis, index);
    return [{ shape: shape.toSpliced(resolvedAxis, 1), dtype }];
  },
  view({ shape, strides }, { axis, index }) {
    const { resolvedAxis, start } = resolveIndex(shape, axis, index);
    return {
      shape: shape.toSpliced(resolvedAxis, 1),
      strides: strides.toSpliced(resolvedAxis, 1),
      offset: start * (strides[resolvedAxis] ?? 0),
    };
  },
  gradient: (rule) => {
    if (!rule.isRecorded) return wholeGradient(rule);
    const { shape } = rule.typeOf(0);
    const { resolvedAxis, start } = resolveIndex(shape, rule.attributes.axis, rule.attributes.index);
    const whole = rule.apply(reshape, [rule.upstream], { shape: shape.with(resolvedAxis, 1) });
    const ranges = [...new Array<Range>(resolvedAxis).fill(null), [start, start + 1] as const];
    return [rule.apply(placeInZeros, [whole], { shape, ranges })];
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
  const first = clampIndex(size, start);
  return { start: first, step, count: Math.max(0, Math.ceil((clampIndex(size, end) - first) / step)) };
}

/** An index counted from either end, clamped to 0 … size. */
function clampIndex(size: number, index: number): number {
  return Math.min(size, Math.max(0, index < 0 ? index + size : index));
}

/** The view of a layout that ranges select. */
export function slicedView(
  { shape, strides }: Layout,
  ranges: readonly Range[],
): StridedView & { offset: number } {
  const resolved = resolveRanges(shape, ranges);
  return {
    shape: resolved.map(({ count }) => count),
    strides: resolved.map(({ step }, axis) => step * (strides[axis] ?? 0)),
    offset: resolved.reduce((sum, { start }, axis) => sum + start * (strides[axis] ?? 0), 0),
  };
}

function resolveIndex(shape: Shape, axis: number, index: number): { resolvedAxis: number; start: number } {
  const resolvedAxis = axisOf("select", axis, shape.length);
  const size = shape[resolvedAxis] ?? 0;
  const start = index < 0 ? index + size : index;
  if (Number.isInteger(index) && start >= 0 && start < size) return { resolvedAxis, start };
  const validRange = size === 0 ? "it is empty" : `valid indices are ${-size} to ${size - 1}`;
  throw new HoldfastError(
    "BAD_INDEX",
    `select: index ${index} of axis ${resolvedAxis} of ${formatShape(shape)}; ${validRange}.`,
    { numbers: { op: "select", index, size } },
  );
}
