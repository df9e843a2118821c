/**
 * softmax and logSoftmax along one axis. Each row's maximum is subtracted before exp, so that no finite row overflows. logSoftmax
 * does not take the logarithm of a softmax, which would lose small values.
 */

import { dtypes, type Expression, type RowKernel, term } from "../../ir/index.js";
import { sum } from "../broadcast.js";
import { mul, sub } from "../elementwise/arithmetic.js";
import { exp } from "../elementwise/functions.js";
import { arrayAt, type GradientRule, type KernelOp, typeAt } from "../op.js";
import { requireFloat } from "../reduction/rule.js";
import { cacheByDtypes, lowerRows } from "../row-lowering.js";
import { axisOf } from "../shape.js";

export type AxisAttributes = { readonly axis: number };

interface Definition {
  readonly name: "softmax" | "logSoftmax";
  /** An element of the result. `shifted`: the operand minus its row's maximum. `sum`: the row's sum of exponentials. */
  readonly value: (shifted: Expression, sum: Expression) => Expression;
  /** The term that the gradient sums over each row. */
  readonly summand: (upstream: Expression, y: Expression) => Expression;
  readonly gradient: (upstream: Expression, y: Expression, rowSum: Expression) => Expression;
}

function softmaxOp({ name, value, summand, gradient }: Definition): KernelOp<AxisAttributes> {
  const kernelFor = cacheByDtypes((dtype = "f32"): RowKernel => {
    const { compute } = dtypes[dtype];
    const shifted = term.sub(term.load(0, compute), term.reduced(0, compute));
    return {
      name,
      inputs: [dtype],
      outputs: [{ dtype, per: "element" }],
      scalars: [],
      stages: [
        { kind: "reduce", op: "max", value: term.load(0, compute) },
        { kind: "reduce", op: "add", value: term.exp(shifted) },
        { kind: "store", output: 0, value: value(shifted, term.reduced(1, compute)) },
      ],
    };
  });
  const gradientKernel = cacheByDtypes((dtype = "f32"): RowKernel => {
    const { compute } = dtypes[dtype];
    const [upstream, y] = [term.load(0, compute), term.load(1, compute)];
    return {
      name: `${name}Gradient`,
      inputs: [dtype, dtype],
      outputs: [{ dtype, per: "element" }],
      scalars: [],
      stages: [
        { kind: "reduce", op: "add", value: summand(upstream, y) },
        { kind: "store", output: 0, value: gradient(upstream, y, term.reduced(0, compute)) },
      ],
    };
  });
  const gradientOp: KernelOp<AxisAttributes> = {
    kind: "kernel",
    name: `${name}Gradient`,
    noGradient: "a recorded gradient is composed of other ops",
    infer: (operands) => [typeAt(name, operands, 1)].map(({ shape, dtype }) => ({ shape, dtype })),
    lower(lowering, operands, outputs, { axis }) {
      const inputs = [arrayAt(operands, 0), arrayAt(operands, 1)];
      const { shape, dtype } = arrayAt(operands, 1);
      const axes = [axisOf(name, axis, shape.length)];
      lowerRows(lowering, { kernel: gradientKernel(dtype), shape, axes, inputs, outputs });
    },
  };
  return {
    kind: "kernel",
    name,
    infer(operands, { axis }) {
      const { shape, dtype } = typeAt(name, operands, 0);
      requireFloat(name, dtype);
      axisOf(name, axis, shape.length);
      return [{ shape, dtype }];
    },
    saves: () => ({ outputs: [0] }),
    gradient: (rule) => [
      rule.isRecorded
        ? recordedGradient(rule, name)
        : rule.apply(gradientOp, [rule.upstream, rule.output(0)], rule.attributes),
    ],
    lower(lowering, operands, outputs, { axis }) {
      const input = arrayAt(operands, 0);
      const { shape, dtype } = input;
      const axes = [axisOf(name, axis, shape.length)];
      lowerRows(lowering, { kernel: kernelFor(dtype), shape, axes, inputs: [input], outputs });
    },
  };
}

/** The gradient made of entries that have gradients too. */
function recordedGradient<V>(
  { apply, upstream, output, attributes: { axis } }: GradientRule<V, AxisAttributes>,
  name: Definition["name"],
): V {
  const y = output(0);
  const rowSum = (value: V): V => apply(sum, [value], { axes: axis, keepsAxes: true });
  return name === "softmax"
    ? apply(mul, [y, apply(sub, [upstream, rowSum(apply(mul, [upstream, y]))])])
    : apply(sub, [upstream, apply(mul, [apply(exp, [y]), rowSum(upstream)])]);
}

/** A row of -∞ only gives NaN, as in PyTorch: its maximum can't be subtracted. */
export const softmax = softmaxOp({
  name: "softmax",
  value: (shifted, sum) => term.div(term.exp(shifted), sum),
  summand: term.mul,
  gradient: (upstream, y, rowSum) => term.mul(y, term.sub(upstream, rowSum)),
});

export const logSoftmax = softmaxOp({
  name: "logSoftmax",
  value: (shifted, sum) => term.sub(shifted, term.log(sum)),
  summand: (upstream) => upstream,
  gradient: (upstream, y, rowSum) => term.sub(upstream, term.mul(term.exp(y), rowSum)),
});
