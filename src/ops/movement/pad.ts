/** pad: a border of one value around an array; a negative border crops. */

import { HoldfastError } from "../../errors/index.js";
import { dtypes } from "../../ir/index.js";
import { copyArray } from "../copy.js";
import { arrayAt, type KernelOp, typeAt } from "../op.js";
import { fillWith } from "../reduction/reduce.js";
import { badShape, formatShape, type Shape } from "../shape.js";
import { viewStrided } from "./part.js";
import { type Range, slicedView } from "./slice.js";

/** `pads`: before and after each axis, from the last axis on, as in PyTorch. */
export type PadAttributes = { readonly pads: readonly number[]; readonly value?: number };

export const pad: KernelOp<PadAttributes> = {
  kind: "kernel",
  name: "pad",
  infer(operands, { pads, value = 0 }) {
    const { shape, dtype } = typeAt("pad", operands, 0);
    if (dtypes[dtype].kind === "integer" && !Number.isInteger(value)) {
      throw new HoldfastError(
        "BAD_ARGUMENT",
        `pad: a border of ${value} around ${dtype} ${formatShape(shape)}, which holds whole numbers. Give one, or convert the ` +
          'tensor: to("f32").',
        { numbers: { op: "pad", value } },
      );
    }
    return [{ shape: paddedShape(shape, pads), dtype }];
  },
  // The border's slope is 0 and what was cropped has none: the same pad, the other way round.
  gradient: (rule) => [
    rule.apply(pad, [rule.upstream], { pads: rule.attributes.pads.map((size) => 0 - size) }),
  ],
  lower(lowering, operands, [output], { pads, value = 0 }) {
    const input = arrayAt(operands, 0);
    if (!output?.storage) return;
    if (pads.some((size) => size > 0)) {
      fillWith(lowering, output, output.dtype === "bool" ? Number(value !== 0) : value);
    }
    const from = slicedView(input, keptRanges(input.shape, pads, -1));
    const to = slicedView(output, keptRanges(output.shape, pads, 1));
    copyArray(lowering, viewStrided(lowering, input, from), viewStrided(lowering, output, to));
  },
};

function bordersOf(rank: number, pads: readonly number[]): readonly (readonly [number, number])[] {
  return Array.from({ length: rank }, (_, axis) => {
    const at = 2 * (rank - 1 - axis);
    return [pads[at] ?? 0, pads[at + 1] ?? 0] as const;
  });
}

function paddedShape(shape: Shape, pads: readonly number[]): Shape {
  const isPairs =
    pads.length % 2 === 0 && pads.length <= 2 * shape.length && pads.every(Number.isSafeInteger);
  if (!isPairs) {
    throw badShape(
      "pad",
      `${formatShape(pads)} for shape ${formatShape(shape)}: give pairs of whole numbers, before and after, from the last axis on, ` +
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

/** What of the operand is kept (sign −1), and where it lies in the result (sign 1). */
function keptRanges(shape: Shape, pads: readonly number[], sign: 1 | -1): readonly Range[] {
  return bordersOf(shape.length, pads).map(([before, after], axis) => [
    Math.max(0, sign * before),
    (shape[axis] ?? 0) - Math.max(0, sign * after),
  ]);
}
