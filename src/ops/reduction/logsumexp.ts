/** logsumexp: log Σ exp(x). The row's maximum is subtracted first, so that no finite element overflows. */

import { dtypes, type Expression, type RowKernel, term } from "../../ir/index.js";
import { elementwise } from "../elementwise/elementwise.js";
import { fitToOperand } from "../gradients.js";
import { arrayAt, type KernelOp, typeAt } from "../op.js";
import { cacheByDtypes, lowerRows } from "../row-lowering.js";
import { axesOf } from "../shape.js";
import { type ReductionAttributes, reducedType, requireFloat, restoreAxes } from "./rule.js";

const kernelFor = cacheByDtypes((dtype = "f32"): RowKernel => {
  const { compute } = dtypes[dtype];
  const x = term.load(0, compute);
  const maximum = term.reduced(0, compute);
  // An infinite maximum is not subtracted: ∞ − ∞ is NaN.
  const isFiniteMaximum = term.eq(term.sub(maximum, maximum), 0);
  const shift = term.select(isFiniteMaximum, maximum, term.constant(0, compute));
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

/** Each element's share of the sum of exponentials. The gradient of a result of -∞ is 0. */
const logsumexpGradient = elementwise({
  name: "logsumexpGradient",
  operands: 3,
  value: ([upstream = none, x = none, result = none]) => {
    const isMinusInfinity = term.eq(result, Number.NEGATIVE_INFINITY);
    const zero: Expression = term.constant(0, x.type);
    return term.select(isMinusInfinity, zero, term.mul(upstream, term.exp(term.sub(x, result))));
  },
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
    lowerRows(lowering, {
      kernel: kernelFor(dtype),
      shape,
      axes,
      inputs: [input],
      outputs,
      emptyValue: ofNothing,
    });
  },
};
