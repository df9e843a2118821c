/** upsampleNearest: repeats the elements of the last axes, as blocks. Its gradient sums the blocks. Both keep channels last. */

import { sumReduction } from "../broadcast.js";
import { copyArray } from "../copy.js";
import { channelsLastStrides, hasChannelsLast, type Layout } from "../device-array.js";
import { arrayAt, type KernelOp, typeAt } from "../op.js";
import { lowerReduction } from "../reduction/reduce.js";
import { badShape, formatShape, type Shape } from "../shape.js";

/** One factor for each of the last axes. */
export type UpsampleAttributes = { readonly factors: readonly number[] };

export const upsampleNearest: KernelOp<UpsampleAttributes> = {
  kind: "kernel",
  name: "upsampleNearest",
  infer(operands, { factors }) {
    const { shape, dtype } = typeAt("upsampleNearest", operands, 0);
    const areValid = factors.every((factor) => Number.isSafeInteger(factor) && factor > 0);
    if (areValid && factors.length <= shape.length) {
      const each = forAllAxes(factors, shape);
      return [{ shape: shape.map((size, axis) => size * (each[axis] ?? 1)), dtype }];
    }
    throw badShape(
      "upsampleNearest",
      `factors ${formatShape(factors)} for ${formatShape(shape)}: pass a whole number, 1 or more, for each of the last axes.`,
    );
  },
  outputStrides: (_, operands, [type]) => [type && stridesLike(arrayAt(operands, 0), type.shape)],
  gradient: ({ apply, upstream, attributes }) => [apply(sumOfBlocks, [upstream], attributes)],
  lower(lowering, operands, [output], { factors }) {
    if (!output) return;
    const x = arrayAt(operands, 0);
    const each = forAllAxes(factors, x.shape);
    const repeated = splitAxes(x, each, (size, stride) => [size, stride, 0]);
    copyArray(lowering, { ...x, ...repeated }, { ...output, ...blocksOf(output, each) });
  },
};

/** The sum of each block: the gradient. */
const sumOfBlocks: KernelOp<UpsampleAttributes> = {
  kind: "kernel",
  name: "upsampleNearestGradient",
  infer(operands, { factors }) {
    const { shape, dtype } = typeAt("upsampleNearestGradient", operands, 0);
    const each = forAllAxes(factors, shape);
    return [{ shape: shape.map((size, axis) => size / (each[axis] ?? 1)), dtype }];
  },
  outputStrides: (_, operands, [type]) => [type && stridesLike(arrayAt(operands, 0), type.shape)],
  gradient: ({ apply, upstream, attributes }) => [apply(upsampleNearest, [upstream], attributes)],
  lower(lowering, operands, [output], { factors }) {
    if (!output) return;
    const x = arrayAt(operands, 0);
    const each = forAllAxes(factors, x.shape);
    const axes = each.flatMap((factor, axis) => (factor > 1 ? [axis + splitsBefore(each, axis) + 1] : []));
    lowerReduction(lowering, sumReduction, { ...x, ...blocksOf(x, each) }, axes, output);
  },
};

function forAllAxes(factors: readonly number[], shape: Shape): readonly number[] {
  return [...new Array<number>(shape.length - factors.length).fill(1), ...factors];
}

function stridesLike(x: Layout, shape: Shape): Layout["strides"] | undefined {
  return hasChannelsLast(x) ? channelsLastStrides(shape) : undefined;
}

/** Each axis with a factor as two: its blocks, and the elements of a block. */
function blocksOf(array: Layout, factors: readonly number[]): Layout {
  return splitAxes(array, factors, (size, stride, factor) => [size / factor, stride * factor, stride]);
}

/** Each axis with a factor as two: `split` gives the size of the first, and both strides. The size of the second is the factor. */
function splitAxes(
  { shape, strides }: Layout,
  factors: readonly number[],
  split: (size: number, stride: number, factor: number) => readonly [number, number, number],
): Layout {
  const axes = shape.flatMap((size, axis) => {
    const [stride = 0, factor = 1] = [strides[axis], factors[axis]];
    if (factor === 1) return [{ size, stride }];
    const [count, outer, inner] = split(size, stride, factor);
    return [
      { size: count, stride: outer },
      { size: factor, stride: inner },
    ];
  });
  return { shape: axes.map(({ size }) => size), strides: axes.map(({ stride }) => stride) };
}

function splitsBefore(factors: readonly number[], axis: number): number {
  return factors.slice(0, axis).filter((factor) => factor > 1).length;
}
