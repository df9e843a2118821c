/** normalize: scales vectors along an axis to length 1. A vector shorter than eps is divided by eps. */

import { dtypes, type RowKernel, term } from "../../ir/index.js";
import { sum } from "../broadcast.js";
import { div, maximum, mul, sub } from "../elementwise/arithmetic.js";
import { ge, where } from "../elementwise/comparisons.js";
import { fitToOperand } from "../gradients.js";
import { arrayAt, type GradientRule, type KernelOp, typeAt } from "../op.js";
import { norm } from "../reduction/norm.js";
import { requireFloat } from "../reduction/rule.js";
import { cacheByDtypes, lowerRows } from "../row-lowering.js";
import { axisOf } from "../shape.js";

/** `eps`: default: 1e-12, as in PyTorch. */
export type NormalizeAttributes = { readonly axis: number; readonly eps?: number };

const name = "normalize";
const defaultEps = 1e-12;

const forwardKernel = cacheByDtypes((dtype = "f32"): RowKernel => {
  const { compute } = dtypes[dtype];
  const x = term.load(0, compute);
  const length = term.sqrt(term.reduced(0, compute));
  return {
    name,
    inputs: [dtype],
    outputs: [
      { dtype, per: "element" },
      { dtype: compute, per: "row" },
    ],
    scalars: [compute],
    stages: [
      { kind: "reduce", op: "add", value: term.mul(x, x) },
      { kind: "store", output: 0, value: term.div(x, term.max(length, term.scalar(0, compute))) },
      { kind: "store", output: 1, value: length },
    ],
  };
});

/** Inputs: upstream, x and length. If eps was the divisor, the length has no gradient. */
const gradientKernel = cacheByDtypes((dtype = "f32"): RowKernel => {
  const { compute } = dtypes[dtype];
  const [upstream, x, length] = [term.load(0, compute), term.load(1, compute), term.load(2, compute)];
  const eps = term.scalar(0, compute);
  const y = term.div(x, term.max(length, eps));
  const projection = term.select(term.ge(length, eps), term.reduced(0, compute), term.constant(0, compute));
  return {
    name: "normalizeGradient",
    inputs: [dtype, dtype, compute],
    outputs: [{ dtype, per: "element" }],
    scalars: [compute],
    stages: [
      { kind: "reduce", op: "add", value: term.mul(upstream, y) },
      {
        kind: "store",
        output: 0,
        value: term.div(term.sub(upstream, term.mul(y, projection)), term.max(length, eps)),
      },
    ],
  };
});

/** Operands: upstream, x, length. */
const normalizeGradient: KernelOp<NormalizeAttributes> = {
  kind: "kernel",
  name: "normalizeGradient",
  noGradient: "a recorded gradient is composed of other ops",
  infer: (operands) => [typeAt(name, operands, 1)].map(({ shape, dtype }) => ({ shape, dtype })),
  lower(lowering, operands, outputs, { axis, eps = defaultEps }) {
    const inputs = operands.map((_, index) => arrayAt(operands, index));
    const { shape, dtype } = arrayAt(operands, 1);
    const axes = [axisOf(name, axis, shape.length)];
    lowerRows(lowering, { kernel: gradientKernel(dtype), shape, axes, inputs, outputs, scalars: [eps] });
  },
};

/** The gradient made of entries that have gradients too. */
function recordedGradient<V>(rule: GradientRule<V, NormalizeAttributes>): V {
  const { apply, upstream } = rule;
  const { axis, eps = defaultEps } = rule.attributes;
  const reduced = { axes: axis, keepsAxes: true };
  const x = rule.operand(0);
  const length = apply(norm, [x], reduced);
  const divisor = apply(maximum, [length, eps]);
  const y = apply(div, [x, divisor]);
  const along = apply(sum, [apply(mul, [upstream, y])], reduced);
  const projection = apply(where, [apply(ge, [length, eps]), along, 0]);
  return fitToOperand(rule, apply(div, [apply(sub, [upstream, apply(mul, [y, projection])]), divisor]), 0);
}

/** Second output: each vector's length before scaling, in the compute dtype. */
export const normalize: KernelOp<NormalizeAttributes> = {
  kind: "kernel",
  name,
  infer(operands, { axis }) {
    const { shape, dtype } = typeAt(name, operands, 0);
    requireFloat(name, dtype);
    const lengths = shape.with(axisOf(name, axis, shape.length), 1);
    return [
      { shape, dtype },
      { shape: lengths, dtype: dtypes[dtype].compute },
    ];
  },
  saves: () => ({ operands: [0], outputs: [1] }),
  gradient: (rule) => [
    rule.isRecorded
      ? recordedGradient(rule)
      : rule.apply(normalizeGradient, [rule.upstream, rule.operand(0), rule.output(1)], rule.attributes),
  ],
  lower(lowering, operands, outputs, { axis, eps = defaultEps }) {
    const input = arrayAt(operands, 0);
    const { shape, dtype } = input;
    const axes = [axisOf(name, axis, shape.length)];
    const kernel = forwardKernel(dtype);
    lowerRows(lowering, { kernel, shape, axes, inputs: [input], outputs, scalars: [eps] });
  },
};
