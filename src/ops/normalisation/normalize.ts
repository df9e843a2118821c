/** normalize: scales vectors along an axis to length 1. A vector shorter than eps is divided by eps. */

import { dtypes, type RowKernel, term } from "../../ir/index.js";
import { arrayAt, type KernelOp, typeAt } from "../op.js";
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

/** Inputs: upstream, y and length. If eps was the divisor, the length has no gradient. */
const gradientKernel = cacheByDtypes((dtype = "f32"): RowKernel => {
  const { compute } = dtypes[dtype];
  const [upstream, y, length] = [term.load(0, compute), term.load(1, compute), term.load(2, compute)];
  const eps = term.scalar(0, compute);
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

/** Operands: upstream, y, length. */
const normalizeGradient: KernelOp<NormalizeAttributes> = {
  kind: "kernel",
  name: "normalizeGradient",
  noGradient: "gradients of gradients are not recorded",
  infer: (operands) => [typeAt(name, operands, 1)].map(({ shape, dtype }) => ({ shape, dtype })),
  lower(lowering, operands, outputs, { axis, eps = defaultEps }) {
    const inputs = operands.map((_, index) => arrayAt(operands, index));
    const { shape, dtype } = arrayAt(operands, 1);
    const axes = [axisOf(name, axis, shape.length)];
    lowerRows(lowering, { kernel: gradientKernel(dtype), shape, axes, inputs, outputs, scalars: [eps] });
  },
};

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
  saves: () => ({ outputs: [0, 1] }),
  gradient: (rule) => [
    rule.apply(normalizeGradient, [rule.upstream, rule.output(0), rule.output(1)], rule.attributes),
  ],
  lower(lowering, operands, outputs, { axis, eps = defaultEps }) {
    const input = arrayAt(operands, 0);
    const { shape, dtype } = input;
    const axes = [axisOf(name, axis, shape.length)];
    const kernel = forwardKernel(dtype);
    lowerRows(lowering, { kernel, shape, axes, inputs: [input], outputs, scalars: [eps] });
  },
};
