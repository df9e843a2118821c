/**
 * variance and std over any axes, in three passes: the mean, what it is off by, and the squares of what differs from it. A
 * mean of squares less a square of the mean would lose every digit where the spread is small; and a mean that is one
 * rounding off would give equal elements a spread, and std a slope there.
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
import { forDtypes, passRows } from "../row-pass.js";
import { axesOf, sizeOf } from "../shape.js";
import { fillWith, longestRow, lowerReduction, type Reduction } from "./reduce.js";
import {
  keptShape,
  type ReductionAttributes,
  reducedCount,
  reducedType,
  requireFloat,
  restoreAxes,
} from "./rule.js";

/** `correction`: how much less than the count the sum of squares is divided by; 1 unless given, as in PyTorch. */
export type VarianceAttributes = ReductionAttributes & { readonly correction?: number };

interface Spread {
  readonly name: "variance" | "std";
  readonly finish: (variance: Expression) => Expression;
}

/** Outputs: the spread, and the mean, which the gradient reads. */
function spread(
  { name, finish }: Spread,
  gradient: <V>(rule: GradientRule<V, VarianceAttributes>, freedom: number) => Gradients<V>,
): KernelOp<VarianceAttributes> {
  const rowKernel = forDtypes((dtype = "f32"): RowKernel => {
    const { compute } = dtypes[dtype];
    const [perCount, perFreedom] = [term.scalar(0, compute), term.scalar(1, compute)];
    const x = term.load(0, compute);
    const rough = term.mul(term.reduced(0, compute), perCount);
    const mean = term.add(rough, term.mul(term.reduced(1, compute), perCount));
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
        { kind: "reduce", op: "add", value: term.sub(x, rough) },
        { kind: "reduce", op: "add", value: squareOf(term.sub(x, mean)) },
        { kind: "store", output: 0, value: finish(term.mul(term.reduced(2, compute), perFreedom)) },
        { kind: "store", output: 1, value: mean },
      ],
    };
  });
  const ofSquares: Reduction = { ...sumReduction, name, finish };
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
    gradient: (rule) => gradient(rule, freedomOf(reducedCount(rule, name), rule.attributes)),
    lower(lowering, operands, [output, mean], attributes) {
      const input = arrayAt(operands, 0);
      if (!output?.storage || !mean) return;
      if (!input.storage) {
        for (const one of [output, mean]) fillWith(lowering, one, Number.NaN);
        return;
      }
      const { shape, dtype } = input;
      const axes = axesOf(name, attributes.axes, shape.length);
      const count = sizeOf(axes.map((axis) => shape[axis] ?? 1));
      const perFreedom = 1 / freedomOf(count, attributes);
      const isOverLast = axes.every((axis, index) => axis === shape.length - axes.length + index);
      if (isOverLast && isContiguous(input) && count <= longestRow) {
        const scalars = [1 / count, perFreedom];
        const kernel = rowKernel(dtype);
        passRows(lowering, { kernel, shape, axes, inputs: [input], outputs: [output, mean], scalars });
        return;
      }
      lowerReduction(lowering, sumReduction, input, axes, mean, 1 / count);
      const missing = lowering.scratchArray(mean.shape, mean.dtype);
      lowerReduction(
        lowering,
        sumReduction,
        distances(lowering, input, mean, "plain"),
        axes,
        missing,
        1 / count,
      );
      add.lower(lowering, [mean, missing], [mean], {});
      const squares = distances(lowering, input, mean, "squared");
      lowerReduction(lowering, ofSquares, squares, axes, output, perFreedom);
    },
  };
}

/** With no freedom left the spread is 0/0, as in PyTorch. */
function freedomOf(count: number, { correction = 1 }: VarianceAttributes): number {
  return Math.max(0, count - correction);
}

function squareOf(x: Expression): Expression {
  return term.mul(x, x);
}

type Distance = "plain" | "squared";

function distanceKernels(distance: Distance): (dtype: Dtype) => RowKernel {
  return forDtypes((dtype = "f32"): RowKernel => {
    const { compute } = dtypes[dtype];
    const plain = term.sub(term.load(0, compute), term.load(1, compute));
    return {
      name: `${distance} distance from the mean`,
      inputs: [dtype, compute],
      outputs: [{ dtype: compute, per: "element" }],
      scalars: [],
      stages: [{ kind: "store", output: 0, value: distance === "squared" ? squareOf(plain) : plain }],
    };
  });
}

const distanceKernel = { plain: distanceKernels("plain"), squared: distanceKernels("squared") } as const;

/** How far each element is from its mean, as an array of the input's shape. */
function distances(
  lowering: Lowering,
  input: DeviceArray,
  mean: DeviceArray,
  distance: Distance,
): DeviceArray {
  const { shape, dtype } = input;
  const found = lowering.scratchArray(shape, dtypes[dtype].compute);
  if (!input.storage || !mean.storage || !found.storage) return found;
  lowering.row({
    kernel: distanceKernel[distance](dtype),
    iteration: iterateElements(shape, [
      input.strides,
      broadcastStrides(mean, shape),
      contiguousStrides(shape),
    ]),
    operands: [input.storage, mean.storage, found.storage],
  });
  return found;
}

const none = term.constant(0, "f32");

/** Of [upstream, x, mean]: 2 (x - mean) / freedom. */
const varianceGradient = elementwise<{ readonly freedom: number }>({
  name: "varianceGradient",
  operands: 3,
  scalars: ({ freedom }) => [2 / freedom],
  value: ([upstream = none, x = none, mean = none], [factor = none]) =>
    term.mul(term.mul(upstream, factor), term.sub(x, mean)),
  noGradient: "gradients of gradients are not recorded",
});

/** Of [upstream, x, mean, std]: (x - mean) / (freedom · std), and 0 where nothing differs, as in PyTorch. */
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
  noGradient: "gradients of gradients are not recorded",
});

export const variance = spread({ name: "variance", finish: (value) => value }, (rule, freedom) => {
  const upstream = restoreAxes(rule, "variance", rule.upstream);
  const operands = [upstream, rule.operand(0), rule.output(1)];
  return [fitToOperand(rule, rule.apply(varianceGradient, operands, { freedom }), 0)];
});

export const std = spread({ name: "std", finish: term.sqrt }, (rule, freedom) => {
  const upstream = restoreAxes(rule, "std", rule.upstream);
  const result = restoreAxes(rule, "std", rule.output(0));
  const operands = [upstream, rule.operand(0), rule.output(1), result];
  return [fitToOperand(rule, rule.apply(stdGradient, operands, { freedom }), 0)];
});
