/** The product over any axes. */

import { dtypes, type Expression, type RowKernel, term } from "../../ir/index.js";
import { arrayAt, type KernelOp, typeAt } from "../op.js";
import { cacheByDtypes, lowerRows } from "../row-lowering.js";
import { axesOf } from "../shape.js";
import { lowerReduction, type Reduction } from "./reduce.js";
import { type ReductionAttributes, reducedType, restoreAxes } from "./rule.js";

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
  noGradient: "gradients of gradients are not recorded",
  infer: (operands) => [typeAt("prodGradient", operands, 1)].map(({ shape, dtype }) => ({ shape, dtype })),
  lower(lowering, operands, outputs, { axes }) {
    const inputs = [arrayAt(operands, 0), arrayAt(operands, 1)];
    const { shape, dtype } = arrayAt(operands, 1);
    lowerRows(lowering, { kernel: gradientKernel(dtype), shape, axes, inputs, outputs });
  },
};

/** Booleans and small integers are multiplied in i32. The product of no elements is 1. */
export const prod: KernelOp<ReductionAttributes> = {
  kind: "kernel",
  name: "prod",
  infer(operands, attributes) {
    const { dtype } = typeAt("prod", operands, 0);
    const isFloat = dtypes[dtype].kind === "float";
    return [reducedType("prod", operands, attributes, isFloat ? dtype : "i32")];
  },
  saves: () => ({ operands: [0] }),
  gradient(rule) {
    const axes = axesOf("prod", rule.attributes.axes, rule.typeOf(0).shape.length);
    return [rule.apply(prodGradient, [restoreAxes(rule, "prod", rule.upstream), rule.operand(0)], { axes })];
  },
  lower(lowering, operands, [output], { axes }) {
    const input = arrayAt(operands, 0);
    if (output) lowerReduction(lowering, multiply, input, axesOf("prod", axes, input.shape.length), output);
  },
};
