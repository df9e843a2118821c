/** The product over any axes. */

import { dtypes, type Expression, type RowKernel, term } from "../../ir/index.js";
import { mul } from "../elementwise/arithmetic.js";
import { eq, where } from "../elementwise/comparisons.js";
import { fill } from "../elementwise/functions.js";
import { permute, reshape } from "../movement/reshape.js";
import { select } from "../movement/slice.js";
import { arrayAt, type GradientRule, type KernelOp, typeAt } from "../op.js";
import { cacheByDtypes, lowerRows } from "../row-lowering.js";
import { axesOf, sizeOf } from "../shape.js";
import { cumsum } from "./cumsum.js";
import { lowerReduction } from "./reduce.js";
import type { Reduction } from "./reduction.js";
import { type ReductionAttributes, reducedType, restoreAxes } from "./rule.js";
import { sumDtype } from "./sum-dtype.js";

const multiply: Reduction = { name: "prod", op: "mul", value: (x) => x, identity: 1 };

/**
 * Inputs: upstream, x. An element's derivative is the product of all other elements. With one zero in the row, only that zero has a
 * derivative other than 0; with several zeros, no element has.
 */
const gradientKernel = cacheByDtypes((dtype = "f32"): RowKernel => {
  const { compute } = dtypes[dtype];
  const [upstream, x] = [term.load(0, compute), term.load(1, compute)];
  const isZero = term.eq(x, 0);
  const [zeros, product] = [term.reduced(0, "i32"), term.reduced(1, compute)];
  const zero = term.constant(0, compute);
  const unit: Expression = term.constant(1, compute);
  const productOfOthers = term.select(
    term.eq(zeros, 0),
    term.div(product, term.select(isZero, unit, x)),
    term.select(term.eq(zeros, isZero), product, zero),
  );
  return {
    name: "prodGradient",
    inputs: [dtype, dtype],
    outputs: [{ dtype, per: "element" }],
    scalars: [],
    stages: [
      { kind: "reduce", op: "add", value: isZero },
      { kind: "reduce", op: "mul", value: term.select(isZero, unit, x) },
      { kind: "store", output: 0, value: term.mul(upstream, productOfOthers) },
    ],
  };
});

const prodGradient: KernelOp<{ readonly axes: readonly number[] }> = {
  kind: "kernel",
  name: "prodGradient",
  noGradient: "a recorded gradient is composed of other ops",
  infer: (operands) => [typeAt("prodGradient", operands, 1)].map(({ shape, dtype }) => ({ shape, dtype })),
  lower(lowering, operands, outputs, { axes }) {
    const inputs = [arrayAt(operands, 0), arrayAt(operands, 1)];
    const { shape, dtype } = arrayAt(operands, 1);
    lowerRows(lowering, { kernel: gradientKernel(dtype), shape, axes, inputs, outputs });
  },
};

/**
 * The gradient made of entries that have gradients too: for each element, the product of a copy of its row in which the element is 1. This
 * is right for any zeros, in memory of n² elements for a row of n.
 */
function recordedGradient<V>(rule: GradientRule<V, ReductionAttributes>, axes: readonly number[]): V {
  const { apply } = rule;
  const { shape } = rule.typeOf(0);
  const order = [...shape.keys()].filter((axis) => !axes.includes(axis)).concat(axes);
  const upstream = restoreAxes(rule, "prod", rule.upstream);
  if (sizeOf(shape) === 0) return apply(mul, [rule.operand(0), upstream]);
  const count = sizeOf(axes.map((axis) => shape[axis] ?? 1));
  const toRows = (value: V | number, width: number): V => {
    const rowsLast = apply(permute, [value], { axes: order });
    return apply(reshape, [rowsLast], { shape: [-1, width] });
  };
  const rows = toRows(rule.operand(0), count);
  const ones = apply(fill, [apply(select, [rows], { axis: 0, index: 0 })], { value: 1 });
  const places = apply(cumsum, [ones], { axis: 0 });
  const isSame = apply(eq, [apply(reshape, [places], { shape: [count, 1] }), places]);
  const copies = apply(where, [isSame, 1, apply(reshape, [rows], { shape: [-1, 1, count] })]);
  const others = apply(prod, [copies], { axes: -1 });
  const gradient = apply(mul, [others, toRows(upstream, 1)]);
  const ordered = apply(reshape, [gradient], { shape: order.map((axis) => shape[axis] ?? 1) });
  return apply(permute, [ordered], { axes: order.map((_, axis) => order.indexOf(axis)) });
}

/** Booleans and integers of up to 32 bits are multiplied in i32. The product of no elements is 1. */
export const prod: KernelOp<ReductionAttributes> = {
  kind: "kernel",
  name: "prod",
  infer(operands, attributes) {
    const { dtype } = typeAt("prod", operands, 0);
    return [reducedType("prod", operands, attributes, sumDtype(dtype))];
  },
  saves: () => ({ operands: [0] }),
  gradient(rule) {
    const axes = axesOf("prod", rule.attributes.axes, rule.typeOf(0).shape.length);
    if (rule.isRecorded) return [recordedGradient(rule, axes)];
    return [rule.apply(prodGradient, [restoreAxes(rule, "prod", rule.upstream), rule.operand(0)], { axes })];
  },
  lower(lowering, operands, [output], { axes }) {
    const input = arrayAt(operands, 0);
    if (output) lowerReduction(lowering, multiply, input, axesOf("prod", axes, input.shape.length), output);
  },
};
