/** sum and mean over any axes. */

import { HoldfastError } from "../../errors/index.js";
import { type Dtype, dtypes } from "../../ir/index.js";
import { mul } from "../elementwise/arithmetic.js";
import { cast } from "../elementwise/cast.js";
import { expand, reshape } from "../movement/reshape.js";
import { arrayAt, type GradientRule, type KernelOp, typeAt } from "../op.js";
import { axesOf, reducedShape, sizeOf } from "../shape.js";
import { lowerReduction, type Reduction } from "./reduce.js";

/** `axes`: all where none are named. `keepsAxes`: reduced axes stay, with size 1. */
export type ReductionAttributes = {
  readonly axes?: number | readonly number[];
  readonly keepsAxes?: boolean;
};

export const addUp: Reduction = { name: "sum", op: "add", value: (x) => x, identity: 0 };

/** Truth values and small integers are counted in i32. */
export const sum: KernelOp<ReductionAttributes> = {
  kind: "kernel",
  name: "sum",
  infer(operands, { axes, keepsAxes = false }) {
    const { shape, dtype } = typeAt("sum", operands, 0);
    const places = axesOf("sum", axes, shape.length);
    return [
      {
        shape: reducedShape(shape, places, keepsAxes),
        dtype: dtypes[dtype].kind === "float" ? dtype : "i32",
      },
    ];
  },
  gradient: (rule) => [stretchBack(rule, "sum", rule.upstream)],
  lower(lowering, operands, [output], { axes }) {
    const input = arrayAt(operands, 0);
    if (output) lowerReduction(lowering, addUp, input, axesOf("sum", axes, input.shape.length), output);
  },
};

export const mean: KernelOp<ReductionAttributes> = {
  kind: "kernel",
  name: "mean",
  infer(operands, { axes, keepsAxes = false }) {
    const { shape, dtype } = typeAt("mean", operands, 0);
    requireFloat("mean", dtype);
    const places = axesOf("mean", axes, shape.length);
    return [{ shape: reducedShape(shape, places, keepsAxes), dtype }];
  },
  gradient(rule) {
    const share = countOf(rule, "mean");
    return [stretchBack(rule, "mean", rule.apply(mul, [rule.upstream, 1 / share]))];
  },
  lower(lowering, operands, [output], { axes }) {
    const input = arrayAt(operands, 0);
    const places = axesOf("mean", axes, input.shape.length);
    const count = sizeOf(places.map((axis) => input.shape[axis] ?? 1));
    // Nothing has no mean: 0 · ∞ is NaN, as in PyTorch.
    if (output) lowerReduction(lowering, addUp, input, places, output, 1 / count);
  },
};

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

/** How many elements one result was made of. */
export function countOf<V>(rule: GradientRule<V, ReductionAttributes>, op: string): number {
  const { shape } = rule.typeOf(0);
  return sizeOf(axesOf(op, rule.attributes.axes, shape.length).map((axis) => shape[axis] ?? 1));
}

/** A value of the result's shape, as the operand's shape: the reduced axes come back as 1 and are stretched. */
function stretchBack<V>(rule: GradientRule<V, ReductionAttributes>, op: string, value: V): V {
  const { shape, dtype } = rule.typeOf(0);
  const kept = reducedShape(shape, axesOf(op, rule.attributes.axes, shape.length), true);
  const seen = rule.apply(expand, [rule.apply(reshape, [value], { shape: kept })], { shape });
  return rule.valueType(seen).dtype === dtype ? seen : rule.apply(cast, [seen], { dtype });
}
