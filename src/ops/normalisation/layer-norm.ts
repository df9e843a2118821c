/** layerNorm: each row less its mean, over its standard deviation; then a weight and a bias, where they are given. */

import { type Dtype, dtypes, type Expression, type RowKernel, term } from "../../ir/index.js";
import { arrayAt, type KernelOp } from "../op.js";
import { forDtypes, passRows } from "../row-pass.js";
import { sizeOf } from "../shape.js";
import {
  inferOverLast,
  type LastAxesAttributes,
  lastAxes,
  lowerBiasGradient,
  normalizedShapeOf,
  type RowSumAttributes,
  rowGradient,
} from "./last-axes.js";

const name = "layerNorm";
const defaultEps = 1e-5;

/** Inputs: x and, where given, weight and bias. Scalars: 1 / columns and eps. */
const forwardKernel = forDtypes((dtype = "f32", ...affine): RowKernel => {
  const { compute } = dtypes[dtype];
  const [perCount, eps] = [term.scalar(0, compute), term.scalar(1, compute)];
  const mean = term.mul(term.reduced(0, compute), perCount);
  const centred = term.sub(term.load(0, compute), mean);
  const variance = term.mul(term.reduced(1, compute), perCount);
  const perSpread = term.div(1, term.sqrt(term.add(variance, eps)));
  const [weight, bias] = affine.map((own, index) => loadAs(compute, own, index + 1));
  const normalized = term.mul(centred, perSpread);
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
      { kind: "store", output: 2, value: perSpread },
    ],
  };
});

/** Inputs: upstream, x, mean, 1 / σ and, where given, weight. Scalar: 1 / columns. */
const gradientKernel = forDtypes((dtype = "f32", ...weights): RowKernel => {
  const { compute } = dtypes[dtype];
  const [upstream, x] = [term.load(0, compute), term.load(1, compute)];
  const [mean, perSpread] = [term.load(2, compute), term.load(3, compute)];
  const normalized = term.mul(term.sub(x, mean), perSpread);
  const [weight] = weights.map((own, index) => loadAs(compute, own, index + 4));
  const pulled = weight ? term.mul(upstream, weight) : upstream;
  const perCount = term.scalar(0, compute);
  const meanPull = term.mul(term.reduced(0, compute), perCount);
  const meanTilt = term.mul(term.reduced(1, compute), perCount);
  const rest = term.sub(term.sub(pulled, meanPull), term.mul(normalized, meanTilt));
  return {
    name: "layerNormGradient",
    inputs: [dtype, dtype, compute, compute, ...weights],
    outputs: [{ dtype, per: "element" }],
    scalars: [compute],
    stages: [
      { kind: "reduce", op: "add", value: pulled },
      { kind: "reduce", op: "add", value: term.mul(pulled, normalized) },
      { kind: "store", output: 0, value: term.mul(rest, perSpread) },
    ],
  };
});

function loadAs(compute: "f32" | "f64" | "i32", dtype: Dtype, input: number): Expression {
  return term.convert(term.load(input, dtypes[dtype].compute), compute);
}

/** Of [upstream, x, mean, 1 / σ, weight?]. */
const layerNormGradient = rowGradient("layerNormGradient", 2, gradientKernel);

/** What the weight's gradient and the bias's are sums of, each over all rows; of [upstream, x, mean, 1 / σ]. */
function pullsOf([upstream = "f32", x = "f32"]: readonly Dtype[]): readonly [Expression, Expression] {
  const { compute } = dtypes[x];
  const centred = term.sub(term.load(1, compute), term.load(2, compute));
  const pull = term.load(0, dtypes[upstream].compute);
  return [term.mul(pull, term.mul(centred, term.load(3, compute))), pull];
}

const weightGradient = lowerBiasGradient("layerNormWeightGradient", 1, (own) => pullsOf(own).slice(0, 1));

/** Of [upstream]. */
const biasGradient = lowerBiasGradient("layerNormBiasGradient", 1, (own) => pullsOf(own).slice(1));

/** Both of them: what they read is read once. */
const affineGradient = lowerBiasGradient("layerNormAffineGradient", 2, pullsOf);

/**
 * Operands: x, then weight and bias, each of which may be left off from the end. Further outputs: each row's mean and
 * 1 / σ, in f32 also of half floats.
 */
export const layerNorm: KernelOp<LastAxesAttributes> = {
  kind: "kernel",
  name,
  infer(operands, attributes) {
    const { whole, ofRow } = inferOverLast(name, operands, attributes, 3);
    return [whole, ofRow, ofRow];
  },
  saves(needs) {
    const [ofX = false, ofWeight = false] = needs;
    const hasWeight = needs.length > 1;
    return {
      operands: [...(ofX || ofWeight ? [0] : []), ...(ofX && hasWeight ? [1] : [])],
      outputs: ofX || ofWeight ? [1, 2] : [],
    };
  },
  gradient(rule) {
    const { apply, upstream } = rule;
    // A weight has at least one axis; what is not there has none.
    const weightShape = rule.typeOf(1).shape;
    const hasWeight = weightShape.length > 0;
    const normalizedShape = normalizedShapeOf(rule.attributes, rule.typeOf(0).shape, weightShape);
    const spread = (): readonly (typeof upstream | number)[] => [
      upstream,
      rule.operand(0),
      rule.output(1),
      rule.output(2),
    ];
    const accumulatorsFor = (...places: readonly number[]): RowSumAttributes => ({
      normalizedShape,
      dtypes: places.map((place) => rule.typeOf(place).dtype),
    });
    const affine =
      rule.needs(1) && rule.needs(2)
        ? rule.applyAll(affineGradient, spread(), accumulatorsFor(1, 2))
        : [
            rule.needs(1) ? apply(weightGradient, spread(), accumulatorsFor(1)) : undefined,
            rule.needs(2) ? apply(biasGradient, [upstream], accumulatorsFor(2)) : undefined,
          ];
    return [
      rule.needs(0)
        ? apply(layerNormGradient, [...spread(), ...(hasWeight ? [rule.operand(1)] : [])], {
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
    passRows(lowering, {
      kernel: forwardKernel(...inputs.map(({ dtype }) => dtype)),
      shape,
      axes: lastAxes(shape, normalizedShape),
      inputs,
      outputs,
      scalars: [1 / sizeOf(normalizedShape), eps],
    });
  },
};
