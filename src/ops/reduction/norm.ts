/** norm: (Σ |x|^p)^(1/p) over any axes. p = ∞ gives the largest |x|, and -∞ the smallest. */

import { HoldfastError } from "../../errors/index.js";
import { dtypes, type Expression, type RowKernel, term } from "../../ir/index.js";
import { mul } from "../elementwise/arithmetic.js";
import { elementwise } from "../elementwise/elementwise.js";
import { abs, sign } from "../elementwise/functions.js";
import { signOf } from "../elementwise/sign-of.js";
import { fitToOperand } from "../gradients.js";
import { arrayAt, type KernelOp, typeAt } from "../op.js";
import { cacheByDtypes, lowerRows } from "../row-lowering.js";
import { axesOf } from "../shape.js";
import { recordedShare, sharedGradientOp } from "./extremes.js";
import { lowerReduction } from "./reduce.js";
import type { Reduction } from "./reduction.js";
import { type ReductionAttributes, reducedType, requireElements, requireFloat, restoreAxes } from "./rule.js";

/** `p`: default: 2. */
export type NormAttributes = ReductionAttributes & { readonly p?: number };

const infinity = Number.POSITIVE_INFINITY;

/** The norms that need no pow. All others use `powerKernel`. */
const reductions: ReadonlyMap<number, Reduction> = new Map<number, Reduction>([
  [1, { name: "norm1", op: "add", value: term.abs, identity: 0 }],
  [2, { name: "norm2", op: "add", value: (x) => term.mul(x, x), finish: term.sqrt, identity: 0 }],
  [infinity, { name: "normInfinity", op: "max", value: term.abs, identity: 0 }],
  [-infinity, { name: "normMinusInfinity", op: "min", value: term.abs, identity: infinity }],
]);

const powerKernel = cacheByDtypes((dtype = "f32"): RowKernel => {
  const { compute } = dtypes[dtype];
  const [power, root] = [term.scalar(0, compute), term.scalar(1, compute)];
  return {
    name: "normP",
    inputs: [dtype],
    outputs: [{ dtype, per: "row" }],
    scalars: [compute, compute],
    stages: [
      { kind: "reduce", op: "add", value: term.pow(term.abs(term.load(0, compute)), power) },
      { kind: "store", output: 0, value: term.pow(term.reduced(0, compute), root) },
    ],
  };
});

const none = term.constant(0, "f32");
const zero = (like: Expression): Expression => term.constant(0, like.type);

const gradientOf1 = elementwise({
  name: "norm1Gradient",
  operands: 2,
  value: ([upstream = none, x = none]) => term.mul(upstream, signOf(x)),
});

/** Operands: upstream, x, norm. The gradient at a norm of 0 is 0. */
const gradientOf2 = elementwise({
  name: "norm2Gradient",
  operands: 3,
  value: ([upstream = none, x = none, norm = none]) =>
    term.select(term.eq(norm, 0), zero(x), term.mul(x, term.div(upstream, norm))),
});

const gradientOfPower = elementwise<{ readonly p: number }>({
  name: "normPGradient",
  operands: 3,
  scalars: ({ p }) => [p - 1],
  value: ([upstream = none, x = none, norm = none], [power = none]) =>
    term.select(
      term.max(term.eq(norm, 0), term.eq(x, 0)),
      zero(x),
      term.mul(upstream, term.mul(signOf(x), term.pow(term.div(term.abs(x), norm), power))),
    ),
});

const gradientOfInfinity = sharedGradientOp({
  name: "normInfinityGradient",
  compared: term.abs,
  derivative: signOf,
});

export const norm: KernelOp<NormAttributes> = {
  kind: "kernel",
  name: "norm",
  infer(operands, attributes) {
    const { p = 2 } = attributes;
    if (Number.isNaN(p) || p === 0) {
      throw new HoldfastError(
        "BAD_ARGUMENT",
        `norm: p is ${p}. Pass another number or an infinity; ne(0).sum() counts the elements that are not 0.`,
        { numbers: { p } },
      );
    }
    const { shape, dtype } = typeAt("norm", operands, 0);
    requireFloat("norm", dtype);
    if (p < 0 || p === infinity) requireElements("norm", shape, attributes);
    return [reducedType("norm", operands, attributes)];
  },
  saves: (_, { p = 2 }) => ({ operands: [0], outputs: p === 1 ? [] : [0] }),
  gradient(rule) {
    const { p = 2, axes } = rule.attributes;
    const upstream = restoreAxes(rule, "norm", rule.upstream);
    const x = rule.operand(0);
    if (p === 1) return [fitToOperand(rule, rule.apply(gradientOf1, [upstream, x]), 0)];
    const operands = [upstream, x, restoreAxes(rule, "norm", rule.output(0))];
    if (Math.abs(p) === infinity) {
      const reducedAxes = axesOf("norm", axes, rule.typeOf(0).shape.length);
      if (!rule.isRecorded) return [rule.apply(gradientOfInfinity, operands, { axes: reducedAxes })];
      const result = restoreAxes(rule, "norm", rule.output(0));
      const share = recordedShare(rule, [upstream, rule.apply(abs, [x]), result], reducedAxes);
      return [fitToOperand(rule, rule.apply(mul, [share, rule.apply(sign, [x])]), 0)];
    }
    const gradient =
      p === 2 ? rule.apply(gradientOf2, operands) : rule.apply(gradientOfPower, operands, { p });
    return [fitToOperand(rule, gradient, 0)];
  },
  lower(lowering, operands, outputs, { axes, p = 2 }) {
    const input = arrayAt(operands, 0);
    const { shape, dtype } = input;
    const reducedAxes = axesOf("norm", axes, shape.length);
    const [output] = outputs;
    const reduction = reductions.get(p);
    if (reduction && output) {
      lowerReduction(lowering, reduction, input, reducedAxes, output);
      return;
    }
    const kernel = powerKernel(dtype);
    const scalars = [p, 1 / p];
    lowerRows(lowering, {
      kernel,
      shape,
      axes: reducedAxes,
      inputs: [input],
      outputs,
      scalars,
      emptyValue: 0,
    });
  },
};
