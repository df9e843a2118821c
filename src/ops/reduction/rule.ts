/** Shared by the rules of reductions: attributes, types and shapes. */

import { HoldfastError } from "../../errors/index.js";
import { type Dtype, dtypes } from "../../ir/index.js";
import { channelsLastStrides, hasChannelsLast } from "../device-array.js";
import { reshape } from "../movement/reshape.js";
import {
  arrayAt,
  type GradientRule,
  type KernelOp,
  type OperandType,
  typeAt,
  type ValueType,
} from "../op.js";
import { axesOf, badShape, formatShape, reducedShape, type Shape, sizeOf } from "../shape.js";

/** `axes`: default: all axes. `keepsAxes`: reduced axes stay, with size 1. */
export type ReductionAttributes = {
  readonly axes?: number | readonly number[];
  readonly keepsAxes?: boolean;
};

/** The type of the first operand with its axes reduced. `resultDtype`: default: the operand's dtype. */
export function reducedType(
  op: string,
  operands: readonly OperandType[],
  { axes, keepsAxes = false }: ReductionAttributes,
  resultDtype?: Dtype,
): ValueType {
  const { shape, dtype } = typeAt(op, operands, 0);
  const reducedAxes = axesOf(op, axes, shape.length);
  return { shape: reducedShape(shape, reducedAxes, keepsAxes), dtype: resultDtype ?? dtype };
}

/** Images stay channels-last, such as the means of windows. */
export const reducedStrides: NonNullable<KernelOp<ReductionAttributes>["outputStrides"]> = (
  _,
  operands,
  [type],
  { axes, keepsAxes = false },
) => {
  const { shape, strides } = arrayAt(operands, 0);
  if (type?.shape.length !== 4 || keepsAxes) return [undefined];
  const reducedAxes = axesOf("reduction", axes, shape.length);
  const keptStrides = strides.filter((_stride, axis) => !reducedAxes.includes(axis));
  const isLast = hasChannelsLast({ shape: type.shape, strides: keptStrides });
  return [isLast ? channelsLastStrides(type.shape) : undefined];
};

/** The result's shape with the reduced axes kept as 1, which broadcasts to the operand's shape. */
export function keptShape(op: string, shape: Shape, { axes }: ReductionAttributes): Shape {
  return reducedShape(shape, axesOf(op, axes, shape.length), true);
}

/** Reshapes a value of the result's shape so that the reduced axes are there again, with size 1. */
export function restoreAxes<V, A extends ReductionAttributes>(
  rule: GradientRule<V, A>,
  op: string,
  value: V,
): V {
  const shape = keptShape(op, rule.typeOf(0).shape, rule.attributes);
  return rule.apply(reshape, [value], { shape });
}

/** The number of operand elements that one result element is reduced from. */
export function reducedCount<V>(rule: GradientRule<V, ReductionAttributes>, op: string): number {
  const { shape } = rule.typeOf(0);
  return sizeOf(axesOf(op, rule.attributes.axes, shape.length).map((axis) => shape[axis] ?? 1));
}

export function requireFloat(op: string, dtype: Dtype): void {
  if (dtypes[dtype].kind === "float") return;
  throw new HoldfastError(
    "BAD_DTYPE",
    `${op} of ${dtype}: it needs a float. Convert first, with to("f32").`,
    {
      numbers: { op },
    },
  );
}

/** Rejects a reduction of no elements, for reductions without a value for it. */
export function requireElements(op: string, shape: Shape, { axes }: ReductionAttributes): void {
  const reducedAxes = axesOf(op, axes, shape.length);
  const resultSize = sizeOf(reducedShape(shape, reducedAxes, false));
  const count = sizeOf(reducedAxes.map((axis) => shape[axis] ?? 1));
  if (resultSize === 0 || count > 0) return;
  throw badShape(
    op,
    `of ${formatShape(shape)} over axes ${formatShape(reducedAxes)}: there is no element to choose. Give each of these axes a ` +
      "size of 1 or more.",
  );
}
