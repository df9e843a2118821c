/**
 * variance and std over any axes, in three passes: the mean, a correction of its rounding error, and the squared deviations. The mean
 * of squares minus the squared mean would lose all digits of a small spread. With an uncorrected mean, equal elements would have a
 * spread other than 0, and std would have a gradient there.
 */

import {
  type Dtype,
  dtypes,
  type Expression,
  iterateElements,
  type RowKernel,
  term,
} from "../../ir/index.js";
import { sumReduction } from "../broadcast.js";
import { broadcastStrides, contiguousStrides, type DeviceArray, isContiguous } from "../device-array.js";
import { add } from "../elementwise/arithmetic.js";
import { elementwise } from "../elementwise/elementwise.js";
import { fitToOperand } from "../gradients.js";
import { arrayAt, type GradientRule, type Gradients, type KernelOp, type Lowering, typeAt } from "../op.js";
import { cacheByDtypes, lowerRows } from "../row-lowering.js";
import { axesOf, sizeOf } from "../shape.js";
import { mean } from "./mean.js";
import { fillWith, lowerReduction, maxRowLength } from "./reduce.js";
import type { Reduction } from "./reduction.js";
import {
  keptShape,
  type ReductionAttributes,
  reducedCount,
  reducedType,
  requireFloat,
  restoreAxes,
} from "./rule.js";

/** `correction`: subtracted from the count to get the divisor. Default: 1, as in PyTorch. */
export type VarianceAttributes = ReductionAttributes & { readonly correction?: number };

interface Spread {
  readonly name: "variance" | "std";
  readonly finish: (variance: Expression) => Expression;
}

/** Outputs: the variance or std, and the mean, which the gradient reads. */
function spreadOp(
  { name, finish }: Spread,
  gradient: <V>(rule: GradientRule<V, VarianceAttributes>, freedom: number) => Gradients<V>,
): KernelOp<VarianceAttributes> {
  const rowKernel = cacheByDtypes((dtype = "f32"): RowKernel => {
    const { compute } = dtypes[dtype];
    const [inverseCount, inverseFreedom] = [term.scalar(0, compute), term.scalar(1, compute)];
    const x = term.load(0, compute);
    const roundedMean = term.mul(term.reduced(0, compute), inverseCount);
    const mean = term.add(roundedMean, term.mul(term.reduced(1, compute), inverseCount));
    return {
      name,
      inputs: [dtype],
      outputs: [
        { dtype, per: "row" },
        { dtype: compute, per: "row" },
      ],
      scalars: [compute, compute],
      stages: [
        { kind: "reduce", op: "add", value: x },
        { kind: "reduce", op: "add", value: term.sub(x, roundedMean) },
        { kind: "reduce", op: "add", value: square(term.sub(x, mean)) },
        { kind: "store", output: 0, value: finish(term.mul(term.reduced(2, compute), inverseFreedom)) },
        { kind: "store", output: 1, value: mean },
      ],
    };
  });
  const squareReduction: Reduction = { ...sumReduction, name, finish };
  return {
    kind: "kernel",
    name,
    infer(operands, attributes) {
      const { shape, dtype } = typeAt(name, operands, 0);
      requireFloat(name, dtype);
      const mean = { shape: keptShape(name, shape, attributes), dtype: dtypes[dtype].compute };
      return [reducedType(name, operands, attributes), mean];
    },
    saves: () => ({ operands: [0], outputs: [0, 1] }),
    gradient: (rule) => gradient(rule, degreesOfFreedom(reducedCount(rule, name), rule.attributes)),
    lower(lowering, operands, [output, mean], attributes) {
      const input = arrayAt(operands, 0);
      if (!output?.storage || !mean) return;
      if (!input.storage) {
        for (const array of [output, mean]) fillWith(lowering, array, Number.NaN);
        return;
      }
      const { shape, dtype } = input;
      const axes = axesOf(name, attributes.axes, shape.length);
      const count = sizeOf(axes.map((axis) => shape[axis] ?? 1));
      const inverseFreedom = 1 / degreesOfFreedom(count, attributes);
      const isOverLast = axes.every((axis, index) => axis === shape.length - axes.length + index);
      if (isOverLast && isContiguous(input) && count <= maxRowLength) {
        const scalars = [1 / count, inverseFreedom];
        const kernel = rowKernel(dtype);
        lowerRows(lowering, { kernel, shape, axes, inputs: [input], outputs: [output, mean], scalars });
        return;
      }
      lowerReduction(lowering, sumReduction, input, axes, mean, 1 / count);
      const correction = lowering.scratchArray(mean.shape, mean.dtype);
      lowerReduction(
        lowering,
        sumReduction,
        deviations(lowering, input, mean, "plain"),
        axes,
        correction,
        1 / count,
      );
      add.lower(lowering, [mean, correction], [mean], {});
      const squares = deviations(lowering, input, mean, "squared");
      lowerReduction(lowering, squareReduction, squares, axes, output, inverseFreedom);
    },
  };
}

/** With 0 degrees of freedom the variance is 0/0, as in PyTorch. */
function degreesOfFreedom(count: number, { correction = 1 }: VarianceAttributes): number {
  return Math.max(0, count - correction);
}

function square(x: Expression): Expression {
  return term.mul(x, x);
}

type Deviation = "plain" | "squared";

function deviationKernelFor(deviation: Deviation): (dtype: Dtype) => RowKernel {
  return cacheByDtypes((dtype = "f32"): RowKernel => {
    const { compute } = dtypes[dtype];
    const plain = term.sub(term.load(0, compute), term.load(1, compute));
    return {
      name: `${deviation} deviation from the mean`,
      inputs: [dtype, compute],
      outputs: [{ dtype: compute, per: "element" }],
      scalars: [],
      stages: [{ kind: "store", output: 0, value: deviation === "squared" ? square(plain) : plain }],
    };
  });
}

const deviationKernels = {
  plain: deviationKernelFor("plain"),
  squared: deviationKernelFor("squared"),
} as const;

/** Each element's deviation from its mean, plain or squared, as an array of the input's shape. */
function deviations(
  lowering: Lowering,
  input: DeviceArray,
  mean: DeviceArray,
  deviation: Deviation,
): DeviceArray {
  const { shape, dtype } = input;
  const result = lowering.scratchArray(shape, dtypes[dtype].compute);
  if (!input.storage || !mean.storage || !result.storage) return result;
  lowering.row({
    kernel: deviationKernels[deviation](dtype),
    iteration: iterateElements(shape, [
      input.strides,
      broadcastStrides(mean, shape),
      contiguousStrides(shape),
    ]),
    operands: [input.storage, mean.storage, result.storage],
  });
  return result;
}

const none = term.constant(0, "f32");

/** Operands: upstream, x, mean. The derivative is 2 (x - mean) / freedom. */
const varianceGradient = elementwise<{ readonly freedom: number }>({
  name: "varianceGradient",
  operands: 3,
  scalars: ({ freedom }) => [2 / freedom],
  value: ([upstream = none, x = none, mean = none], [factor = none]) =>
    term.mul(term.mul(upstream, factor), term.sub(x, mean)),
});

/** Operands: upstream, x, mean, std. The derivative is (x - mean) / (freedom · std), or 0 if std is 0, as in PyTorch. */
const stdGradient = elementwise<{ readonly freedom: number }>({
  name: "stdGradient",
  operands: 4,
  scalars: ({ freedom }) => [1 / freedom],
  value: ([upstream = none, x = none, mean = none, std = none], [factor = none]) =>
    term.select(
      term.eq(std, 0),
      term.constant(0, x.type),
      term.mul(term.mul(term.div(upstream, std), factor), term.sub(x, mean)),
    ),
});

/** The mean, which a recorded gradient has to differentiate too. */
function meanOf<V>(rule: GradientRule<V, VarianceAttributes>): V {
  if (!rule.isRecorded) return rule.output(1);
  return rule.apply(mean, [rule.operand(0)], { ...rule.attributes, keepsAxes: true });
}

export const variance = spreadOp({ name: "variance", finish: (value) => value }, (rule, freedom) => {
  const upstream = restoreAxes(rule, "variance", rule.upstream);
  const operands = [upstream, rule.operand(0), meanOf(rule)];
  return [fitToOperand(rule, rule.apply(varianceGradient, operands, { freedom }), 0)];
});

export const std = spreadOp({ name: "std", finish: term.sqrt }, (rule, freedom) => {
  const upstream = restoreAxes(rule, "std", rule.upstream);
  const result = restoreAxes(rule, "std", rule.output(0));
  const operands = [upstream, rule.operand(0), meanOf(rule), result];
  return [fitToOperand(rule, rule.apply(stdGradient, operands, { freedom }), 0)];
});
