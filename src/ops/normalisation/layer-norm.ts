/** layerNorm: normalises each row to mean 0 and variance 1, then applies an optional weight and an optional bias. */

import { type Compute, type Dtype, dtypes, type Expression, type RowKernel, term } from "../../ir/index.js";
import { arrayAt, type KernelOp } from "../op.js";
import { cacheByDtypes, lowerRows } from "../row-lowering.js";
import { sizeOf } from "../shape.js";
import {
  type ColumnSumAttributes,
  columnSumOp,
  inferOverLast,
  inputGradientOp,
  type LastAxesAttributes,
  lastAxes,
  normalizedShapeOf,
} from "./last-axes.js";
import { recordedGradients } from "./recorded-gradients.js";

const name = "layerNorm";
const defaultEps = 1e-5;

/** Inputs: x and the optional weight and bias. Scalars: 1 / columns and eps. */
const forwardKernel = cacheByDtypes((dtype = "f32", ...affine): RowKernel => {
  const { compute } = dtypes[dtype];
  const [inverseCount, eps] = [term.scalar(0, compute), term.scalar(1, compute)];
  const mean = term.mul(term.reduced(0, compute), inverseCount);
  const centred = term.sub(term.load(0, compute), mean);
  const variance = term.mul(term.reduced(1, compute), inverseCount);
  const inverseStd = term.div(1, term.sqrt(term.add(variance, eps)));
  const [weight, bias] = affine.map((dtype, index) => loadAs(compute, dtype, index + 1));
  const normalized = term.mul(centred, inverseStd);
  const weighted = weight ? term.mul(normalized, weight) : normalized;
  return {
    name,
    inputs: [dtype, ...affine],
    outputs: [
      { dtype, per: "element" },
      { dtype: compute, per: "row" },
      { dtype: compute, per: "row" },
    ],
    scalars: [compute, compute],
    stages: [
      { kind: "reduce", op: "add", value: term.load(0, compute) },
      { kind: "reduce", op: "add", value: term.mul(centred, centred) },
      { kind: "store", output: 0, value: bias ? term.add(weighted, bias) : weighted },
      { kind: "store", output: 1, value: mean },
      { kind: "store", output: 2, value: inverseStd },
    ],
  };
});

/** Inputs: upstream, x, mean, 1 / σ and the optional weight. Scalar: 1 / columns. */
const gradientKernel = cacheByDtypes((dtype = "f32", ...weights): RowKernel => {
  const { compute } = dtypes[dtype];
  const [upstream, x] = [term.load(0, compute), term.load(1, compute)];
  const [mean, inverseStd] = [term.load(2, compute), term.load(3, compute)];
  const normalized = term.mul(term.sub(x, mean), inverseStd);
  const [weight] = weights.map((dtype, index) => loadAs(compute, dtype, index + 4));
  const normalizedGradient = weight ? term.mul(upstream, weight) : upstream;
  const inverseCount = term.scalar(0, compute);
  const meanGradient = term.mul(term.reduced(0, compute), inverseCount);
  const projection = term.mul(term.reduced(1, compute), inverseCount);
  const centredGradient = term.sub(
    term.sub(normalizedGradient, meanGradient),
    term.mul(normalized, projection),
  );
  return {
    name: "layerNormGradient",
    inputs: [dtype, dtype, compute, compute, ...weights],
    outputs: [{ dtype, per: "element" }],
    scalars: [compute],
    stages: [
      { kind: "reduce", op: "add", value: normalizedGradient },
      { kind: "reduce", op: "add", value: term.mul(normalizedGradient, normalized) },
      { kind: "store", output: 0, value: term.mul(centredGradient, inverseStd) },
    ],
  };
});

function loadAs(compute: Compute, dtype: Dtype, input: number): Expression {
  return term.convert(term.load(input, dtypes[dtype].compute), compute);
}

/** Operands: upstream, x, mean, 1 / σ, and the optional weight. */
const layerNormGradient = inputGradientOp("layerNormGradient", 2, gradientKernel);

/** The terms that the weight's and the bias's gradients sum over all rows. Operands: upstream, x, mean, 1 / σ. */
function affineTerms([upstream = "f32", x = "f32"]: readonly Dtype[]): readonly [Expression, Expression] {
  const { compute } = dtypes[x];
  const centred = term.sub(term.load(1, compute), term.load(2, compute));
  const upstreamLoad = term.load(0, dtypes[upstream].compute);
  return [term.mul(upstreamLoad, term.mul(centred, term.load(3, compute))), upstreamLoad];
}

const weightGradient = columnSumOp("layerNormWeightGradient", 1, (dtypes) => affineTerms(dtypes).slice(0, 1));

/** Operand: upstream. */
const biasGradient = columnSumOp("layerNormBiasGradient", 1, (dtypes) => affineTerms(dtypes).slice(1));

/** Both gradients in one pass over the operands. */
const affineGradient = columnSumOp("layerNormAffineGradient", 2, affineTerms);

/** Operands: x, the optional weight, the optional bias. Further outputs: each row's mean and 1 / σ, in the compute dtype. */
export const layerNorm: KernelOp<LastAxesAttributes> = {
  kind: "kernel",
  name,
  infer(operands, attributes) {
    const { elementType, rowType } = inferOverLast(name, operands, attributes, 3);
    return [elementType, rowType, rowType];
  },
  saves(needs) {
    const [needsX = false, needsWeight = false] = needs;
    const hasWeight = needs.length > 1;
    return {
      operands: [...(needsX || needsWeight ? [0] : []), ...(needsX && hasWeight ? [1] : [])],
      outputs: needsX || needsWeight ? [1, 2] : [],
    };
  },
  gradient(rule) {
    const { apply, upstream } = rule;
    // A weight has at least one axis; the type of an absent operand has none.
    const weightShape = rule.typeOf(1).shape;
    const hasWeight = weightShape.length > 0;
    const normalizedShape = normalizedShapeOf(rule.attributes, rule.typeOf(0).shape, weightShape);
    if (rule.isRecorded) {
      const { eps = defaultEps } = rule.attributes;
      const axes = lastAxes(rule.typeOf(0).shape, normalizedShape);
      return recordedGradients(rule, { axes, affineShape: normalizedShape, eps, isCentred: true });
    }
    const savedOperands = (): readonly (typeof upstream | number)[] => [
      upstream,
      rule.operand(0),
      rule.output(1),
      rule.output(2),
    ];
    const sumAttributes = (...indices: readonly number[]): ColumnSumAttributes => ({
      normalizedShape,
      dtypes: indices.map((index) => rule.typeOf(index).dtype),
    });
    const affine =
      rule.needs(1) && rule.needs(2)
        ? rule.applyAll(affineGradient, savedOperands(), sumAttributes(1, 2))
        : [
            rule.needs(1) ? apply(weightGradient, savedOperands(), sumAttributes(1)) : undefined,
            rule.needs(2) ? apply(biasGradient, [upstream], sumAttributes(2)) : undefined,
          ];
    return [
      rule.needs(0)
        ? apply(layerNormGradient, [...savedOperands(), ...(hasWeight ? [rule.operand(1)] : [])], {
            normalizedShape,
          })
        : undefined,
      ...affine,
    ];
  },
  lower(lowering, operands, outputs, attributes) {
    const inputs = operands.map((_, index) => arrayAt(operands, index));
    const { shape } = arrayAt(operands, 0);
    const { eps = defaultEps } = attributes;
    const normalizedShape = normalizedShapeOf(attributes, shape, inputs[1]?.shape);
    lowerRows(lowering, {
      kernel: forwardKernel(...inputs.map(({ dtype }) => dtype)),
      shape,
      axes: lastAxes(shape, normalizedShape),
      inputs,
      outputs,
      scalars: [1 / sizeOf(normalizedShape), eps],
    });
  },
};
