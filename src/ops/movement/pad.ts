/** pad: adds a border of one value around an array. A negative border crops. */

import { HoldfastError } from "../../errors/index.js";
import { dtypes } from "../../ir/index.js";
import { copyArray } from "../copy.js";
import { arrayAt, type KernelOp, typeAt } from "../op.js";
import { fillWith } from "../reduction/reduce.js";
import { badShape, formatShape, type Shape } from "../shape.js";
import { type Range, slice, slicedView } from "./slice.js";
import { viewStrided } from "./strided-view.js";

/** `pads`: the sizes before and after each axis, starting with the last axis, as in PyTorch. */
export type PadAttributes = { readonly pads: readonly number[]; readonly value?: number };

export const pad: KernelOp<PadAttributes> = {
  kind: "kernel",
  name: "pad",
  infer(operands, { pads, value = 0 }) {
    const { shape, dtype } = typeAt("pad", operands, 0);
    if (dtypes[dtype].kind === "integer" && !Number.isInteger(value)) {
      throw new HoldfastError(
        "BAD_ARGUMENT",
        `pad: a border of ${value} around ${dtype} ${formatShape(shape)}, which holds whole numbers. Pass a whole number, or convert the ` +
          'tensor: to("f32").',
        { numbers: { op: "pad", value } },
      );
    }
    return [{ shape: paddedShape(shape, pads), dtype }];
  },
  // The border has no gradient, and cropped elements have a gradient of 0: the same pad with negative sizes.
  gradient({ apply, upstream, attributes: { pads }, outputTypes }) {
    const isView = pads.every((size) => size >= 0);
    const ranges = keptRanges(outputTypes[0]?.shape ?? [], pads, 1);
    if (isView) return [apply(slice, [upstream], { ranges })];
    return [apply(pad, [upstream], { pads: pads.map((size) => 0 - size) })];
  },
  lower(lowering, operands, [output], { pads, value = 0 }) {
    const input = arrayAt(operands, 0);
    if (!output?.storage) return;
    if (pads.some((size) => size > 0)) {
      fillWith(lowering, output, output.dtype === "bool" ? Number(value !== 0) : value);
    }
    const source = slicedView(input, keptRanges(input.shape, pads, -1));
    const target = slicedView(output, keptRanges(output.shape, pads, 1));
    copyArray(lowering, viewStrided(lowering, input, source), viewStrided(lowering, output, target));
  },
};

function bordersOf(rank: number, pads: readonly number[]): readonly (readonly [number, number])[] {
  return Array.from({ length: rank }, (_, axis) => {
    const index = 2 * (rank - 1 - axis);
    return [pads[index] ?? 0, pads[index + 1] ?? 0] as const;
  });
}

function paddedShape(shape: Shape, pads: readonly number[]): Shape {
  const areValidPairs =
    pads.length % 2 === 0 && pads.length <= 2 * shape.length && pads.every(Number.isSafeInteger);
  if (!areValidPairs) {
    throw badShape(
      "pad",
      `${formatShape(pads)} for shape ${formatShape(shape)}: pass pairs of whole numbers, before and after, from the last axis on, ` +
        `at most ${shape.length} of them.`,
    );
  }
  const borders = bordersOf(shape.length, pads);
  return shape.map((size, axis) => {
    const [before, after] = borders[axis] ?? [0, 0];
    const cropped = Math.max(0, -before) + Math.max(0, -after);
    if (cropped <= size) return size + before + after;
    throw badShape(
      "pad",
      `axis ${axis} of ${formatShape(shape)} has ${size}, and ${cropped} would be cropped.`,
    );
  });
}

/** The ranges of the kept elements, in the operand (sign −1) or in the result (sign 1). */
function keptRanges(shape: Shape, pads: readonly number[], sign: 1 | -1): readonly Range[] {
  return bordersOf(shape.length, pads).map(([before, after], axis) => [
    Math.max(0, sign * before),
    (shape[axis] ?? 0) - Math.max(0, sign * after),
  ]);
}
