/**
 * softmax and logSoftmax along one axis. Each row's largest element is taken out before anything is raised, so that no
 * finite row overflows; the logarithm is never taken of a softmax, which has lost what is small.
 */

import { dtypes, type Expression, type RowKernel, term } from "../../ir/index.js";
import { arrayAt, type KernelOp, typeAt } from "../op.js";
import { requireFloat } from "../reduction/rule.js";
import { forDtypes, passRows } from "../row-pass.js";
import { axisOf } from "../shape.js";

export type AxisAttributes = { readonly axis: number };

interface Definition {
  readonly name: "softmax" | "logSoftmax";
  /** The element, of itself less its row's largest and of the row's sum of exponentials. */
  readonly value: (shifted: Expression, sum: Expression) => Expression;
  /** The gradient takes off each row's sum of this. */
  readonly pulled: (upstream: Expression, y: Expression) => Expression;
  readonly gradient: (upstream: Expression, y: Expression, pull: Expression) => Expression;
}

function softmaxOf({ name, value, pulled, gradient }: Definition): KernelOp<AxisAttributes> {
  const kernelFor = forDtypes((dtype = "f32"): RowKernel => {
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
  const gradientKernel = forDtypes((dtype = "f32"): RowKernel => {
    const { compute } = dtypes[dtype];
    const [upstream, y] = [term.load(0, compute), term.load(1, compute)];
    return {
      name: `${name}Gradient`,
      inputs: [dtype, dtype],
      outputs: [{ dtype, per: "element" }],
      scalars: [],
      stages: [
        { kind: "reduce", op: "add", value: pulled(upstream, y) },
        { kind: "store", output: 0, value: gradient(upstream, y, term.reduced(0, compute)) },
      ],
    };
  });
  const gradientOp: KernelOp<AxisAttributes> = {
    kind: "kernel",
    name: `${name}Gradient`,
    noGradient: "gradients of gradients are not recorded",
    infer: (operands) => [typeAt(name, operands, 1)].map(({ shape, dtype }) => ({ shape, dtype })),
    lower(lowering, operands, outputs, { axis }) {
      const inputs = [arrayAt(operands, 0), arrayAt(operands, 1)];
      const { shape, dtype } = arrayAt(operands, 1);
      const axes = [axisOf(name, axis, shape.length)];
      passRows(lowering, { kernel: gradientKernel(dtype), shape, axes, inputs, outputs });
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
    gradient: (rule) => [rule.apply(gradientOp, [rule.upstream, rule.output(0)], rule.attributes)],
    lower(lowering, operands, outputs, { axis }) {
      const input = arrayAt(operands, 0);
      const { shape, dtype } = input;
      const axes = [axisOf(name, axis, shape.length)];
      passRows(lowering, { kernel: kernelFor(dtype), shape, axes, inputs: [input], outputs });
    },
  };
}

/** A row of nothing but -∞ is NaN, as in PyTorch: it has no largest element to take out. */
export const softmax = softmaxOf({
  name: "softmax",
  value: (shifted, sum) => term.div(term.exp(shifted), sum),
  pulled: term.mul,
  gradient: (upstream, y, pull) => term.mul(y, term.sub(upstream, pull)),
});

export const logSoftmax = softmaxOf({
  name: "logSoftmax",
  value: (shifted, sum) => term.sub(shifted, term.log(sum)),
  pulled: (upstream) => upstream,
  gradient: (upstream, y, pull) => term.sub(upstream, term.mul(term.exp(y), pull)),
});
