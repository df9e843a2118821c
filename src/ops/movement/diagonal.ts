/** diagonal: a view of a diagonal of two axes. */

import { HoldfastError } from "../../errors/index.js";
import { copyArray } from "../copy.js";
import type { Layout } from "../device-array.js";
import { arrayAt, type KernelOp, typeAt, type ViewOp } from "../op.js";
import { axisOf, formatShape, type Shape } from "../shape.js";
import { type StridedView, viewStrided } from "./strided-view.js";

/** `offset`: above the main diagonal if positive, below it if negative. */
export type DiagonalAttributes = { readonly offset: number; readonly axis1: number; readonly axis2: number };

/** The diagonal becomes the last axis. */
export const diagonal: ViewOp<DiagonalAttributes> = {
  kind: "view",
  name: "diagonal",
  infer(operands, attributes) {
    const { shape, dtype } = typeAt("diagonal", operands, 0);
    const { rest, length } = resolve(shape, attributes);
    return [{ shape: [...rest.map((axis) => shape[axis] ?? 1), length], dtype }];
  },
  view: viewOf,
  gradient: (rule) => [
    rule.apply(diagonalGradient, [rule.upstream], { ...rule.attributes, shape: rule.typeOf(0).shape }),
  ],
};

/** Zeros with the operand on their diagonal. */
const diagonalGradient: KernelOp<DiagonalAttributes & { readonly shape: Shape }> = {
  kind: "kernel",
  name: "diagonalGradient",
  gradient: ({ apply, upstream, attributes: { shape: _, ...attributes } }) => [
    apply(diagonal, [upstream], attributes),
  ],
  infer: (operands, { shape }) => [{ shape, dtype: typeAt("diagonalGradient", operands, 0).dtype }],
  lower(lowering, operands, [output], attributes) {
    if (!output?.storage) return;
    lowering.fill(output.storage, 0);
    copyArray(lowering, arrayAt(operands, 0), viewStrided(lowering, output, viewOf(output, attributes)));
  },
};

function viewOf({ shape, strides }: Layout, attributes: DiagonalAttributes): StridedView {
  const { rest, rows, columns, length } = resolve(shape, attributes);
  const { offset } = attributes;
  const [rowStride, columnStride] = [strides[rows] ?? 0, strides[columns] ?? 0];
  const first = offset >= 0 ? offset * columnStride : -offset * rowStride;
  return {
    shape: [...rest.map((axis) => shape[axis] ?? 1), length],
    strides: [...rest.map((axis) => strides[axis] ?? 0), rowStride + columnStride],
    offset: length > 0 ? first : 0,
  };
}

function resolve(
  shape: Shape,
  { offset, axis1, axis2 }: DiagonalAttributes,
): { rest: number[]; rows: number; columns: number; length: number } {
  const rows = axisOf("diagonal", axis1, shape.length);
  const columns = axisOf("diagonal", axis2, shape.length);
  if (rows === columns || !Number.isInteger(offset)) {
    throw new HoldfastError(
      "BAD_ARGUMENT",
      `diagonal ${offset} of axes ${axis1} and ${axis2} of ${formatShape(shape)}: pass two different axes and a whole offset.`,
    );
  }
  const [height, width] = [shape[rows] ?? 0, shape[columns] ?? 0];
  const length = Math.max(0, Math.min(height + Math.min(0, offset), width - Math.max(0, offset)));
  const rest = shape.flatMap((_, axis) => (axis === rows || axis === columns ? [] : [axis]));
  return { rest, rows, columns, length };
}
