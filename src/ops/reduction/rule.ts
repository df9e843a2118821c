/** What the rules of reductions share. */

import type { Dtype } from "../../ir/index.js";
import { reshape } from "../movement/reshape.js";
import { type GradientRule, type OperandType, typeAt, type ValueType } from "../op.js";
import { axesOf, badShape, formatShape, reducedShape, type Shape, sizeOf } from "../shape.js";
import type { ReductionAttributes } from "./sum.js";

/** The type of one operand with its axes reduced; of its own dtype unless another is given. */
export function reducedType(
  op: string,
  operands: readonly OperandType[],
  { axes, keepsAxes = false }: ReductionAttributes,
  dtype?: Dtype,
): ValueType {
  const own = typeAt(op, operands, 0);
  const places = axesOf(op, axes, own.shape.length);
  return { shape: reducedShape(own.shape, places, keepsAxes), dtype: dtype ?? own.dtype };
}

/** The shape of one value for each reduction, with the reduced axes as 1: it stretches to the operand's. */
export function keptShape(op: string, shape: Shape, { axes }: ReductionAttributes): Shape {
  return reducedShape(shape, axesOf(op, axes, shape.length), true);
}

/** A value of the result's shape with the reduced axes back as 1. */
export function restoreAxes<V, A extends ReductionAttributes>(
  rule: GradientRule<V, A>,
  op: string,
  value: V,
): V {
  const shape = keptShape(op, rule.typeOf(0).shape, rule.attributes);
  return rule.apply(reshape, [value], { shape });
}

/** Rejects to reduce nothing to something, for reductions that have no value for nothing. */
export function requireElements(op: string, shape: Shape, { axes }: ReductionAttributes): void {
  const places = axesOf(op, axes, shape.length);
  const result = sizeOf(reducedShape(shape, places, false));
  const length = sizeOf(places.map((axis) => shape[axis] ?? 1));
  if (result === 0 || length > 0) return;
  throw badShape(
    op,
    `of ${formatShape(shape)} over axes ${formatShape(places)}: there is no element to choose. Give each of these axes a ` +
      "size of 1 or more.",
  );
}
