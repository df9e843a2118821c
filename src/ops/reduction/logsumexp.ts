/** logsumexp: log Σ exp(x), with the row's largest element taken out first, so that no finite element overflows. */

import { dtypes, type Expression, type RowKernel, term } from "../../ir/index.js";
import { elementwise } from "../elementwise/elementwise.js";
import { fitToOperand } from "../gradients.js";
import { arrayAt, type KernelOp, typeAt } from "../op.js";
import { forDtypes, passRows } from "../row-pass.js";
import { axesOf } from "../shape.js";
import { type ReductionAttributes, reducedType, requireFloat, restoreAxes } from "./rule.js";

const kernelFor = forDtypes((dtype = "f32"): RowKernel => {
  const { compute } = dtypes[dtype];
  const x = term.load(0, compute);
  const largest = term.reduced(0, compute);
  // An infinity can't be taken out: it less itself would be NaN.
  const isBounded = term.eq(term.sub(largest, largest), 0);
  const shift = term.select(isBounded, largest, term.constant(0, compute));
  return {
    name: "logsumexp",
    inputs: [dtype],
    outputs: [{ dtype, per: "row" }],
    scalars: [],
    stages: [
      { kind: "reduce", op: "max", value: x },
      { kind: "reduce", op: "add", value: term.exp(term.sub(x, shift)) },
      { kind: "store", output: 0, value: term.add(term.log(term.reduced(1, compute)), shift) },
    ],
  };
});

const none = term.constant(0, "f32");

/** Each element's share of the sum; a row that is -∞ has none to give. */
const logsumexpGradient = elementwise({
  name: "logsumexpGradient",
  operands: 3,
  value: ([upstream = none, x = none, result = none]) => {
    const isNothing = term.eq(result, Number.NEGATIVE_INFINITY);
    const zero: Expression = term.constant(0, x.type);
    return term.select(isNothing, zero, term.mul(upstream, term.exp(term.sub(x, result))));
  },
  noGradient: "gradients of gradients are not recorded",
});

export const logsumexp: KernelOp<ReductionAttributes> = {
  kind: "kernel",
  name: "logsumexp",
  infer(operands, attributes) {
    requireFloat("logsumexp", typeAt("logsumexp", operands, 0).dtype);
    return [reducedType("logsumexp", operands, attributes)];
  },
  saves: () => ({ operands: [0], outputs: [0] }),
  gradient(rule) {
    const upstream = restoreAxes(rule, "logsumexp", rule.upstream);
    const result = restoreAxes(rule, "logsumexp", rule.output(0));
    return [fitToOperand(rule, rule.apply(logsumexpGradient, [upstream, rule.operand(0), result]), 0)];
  },
  lower(lowering, operands, outputs, attributes) {
    const input = arrayAt(operands, 0);
    const { shape, dtype } = input;
    const axes = axesOf("logsumexp", attributes.axes, shape.length);
    const ofNothing = Number.NEGATIVE_INFINITY;
    passRows(lowering, { kernel: kernelFor(dtype), shape, axes, inputs: [input], outputs, ofNothing });
  },
};
