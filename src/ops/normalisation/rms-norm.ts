/** rmsNorm: divides each row by its root mean square, then multiplies by an optional weight. */

import { type Dtype, dtypes, type RowKernel, term } from "../../ir/index.js";
import { arrayAt, type KernelOp } from "../op.js";
import { cacheByDtypes, lowerRows } from "../row-lowering.js";
import { sizeOf } from "../shape.js";
import {
  columnSumOp,
  inferOverLast,
  inputGradientOp,
  type LastAxesAttributes,
  lastAxes,
  normalizedShapeOf,
} from "./last-axes.js";
import { recordedGradients } from "./recorded-gradients.js";

const name = "rmsNorm";

/** Inputs: x and the optional weight. Scalars: 1 / columns and eps. */
const forwardKernel = cacheByDtypes((dtype = "f32", ...weights): RowKernel => {
  const { compute } = dtypes[dtype];
  const x = term.load(0, compute);
  const meanSquare = term.mul(term.reduced(0, compute), term.scalar(0, compute));
  const inverseRms = term.div(1, term.sqrt(term.add(meanSquare, term.scalar(1, compute))));
  const normalized = term.mul(x, inverseRms);
  const [weight] = weights.map((dtype) => term.convert(term.load(1, dtypes[dtype].compute), compute));
  return {
    name,
    inputs: [dtype, ...weights],
    outputs: [
      { dtype, per: "element" },
      { dtype: compute, per: "row" },
    ],
    scalars: [compute, compute],
    stages: [
      { kind: "reduce", op: "add", value: term.mul(x, x) },
      { kind: "store", output: 0, value: weight ? term.mul(normalized, weight) : normalized },
      { kind: "store", output: 1, value: inverseRms },
    ],
  };
});

/** Inputs: upstream, x, 1 / rms and the optional weight. Scalar: 1 / columns. */
const gradientKernel = cacheByDtypes((dtype = "f32", ...weights): RowKernel => {
  const { compute } = dtypes[dtype];
  const [upstream, x, inverseRms] = [term.load(0, compute), term.load(1, compute), term.load(2, compute)];
  const normalized = term.mul(x, inverseRms);
  const [weight] = weights.map((dtype) => term.convert(term.load(3, dtypes[dtype].compute), compute));
  const normalizedGradient = weight ? term.mul(upstream, weight) : upstream;
  const projection = term.mul(term.reduced(0, compute), term.scalar(0, compute));
  return {
    name: "rmsNormGradient",
    inputs: [dtype, dtype, compute, ...weights],
    outputs: [{ dtype, per: "element" }],
    scalars: [compute],
    stages: [
      { kind: "reduce", op: "add", value: term.mul(normalizedGradient, normalized) },
      {
        kind: "store",
        output: 0,
        value: term.mul(term.sub(normalizedGradient, term.mul(normalized, projection)), inverseRms),
      },
    ],
  };
});

/** Operands: upstream, x, 1 / rms, and the optional weight. */
const rmsNormGradient = inputGradientOp("rmsNormGradient", 1, gradientKernel);

/** Operands: upstream, x, 1 / rms. */
const weightGradient = columnSumOp("rmsNormWeightGradient", 1, ([upstream = "f32", x = "f32"]) => {
  const { compute } = dtypes[x];
  const normalized = term.mul(term.load(1, compute), term.load(2, compute));
  return [term.mul(term.load(0, dtypes[upstream].compute), normalized)];
});

/** The machine epsilon of the compute dtype, as in PyTorch. */
function epsOf(dtype: Dtype): number {
  return dtypes[dtype].compute === "f64" ? Number.EPSILON : 2 ** -23;
}

/** Operands: x and the optional weight. Second output: each row's 1 / rms, in the compute dtype. */
export const rmsNorm: KernelOp<LastAxesAttributes> = {
  kind: "kernel",
  name,
  infer(operands, attributes) {
    const { elementType, rowType } = inferOverLast(name, operands, attributes, 2);
    return [elementType, rowType];
  },
  saves: (needs) => ({ operands: needs[0] && needs.length > 1 ? [0, 1] : [0], outputs: [1] }),
  gradient(rule) {
    const { apply, upstream } = rule;
    // A weight has at least one axis; the type of an absent operand has none.
    const { shape: weightShape, dtype } = rule.typeOf(1);
    const normalizedShape = normalizedShapeOf(rule.attributes, rule.typeOf(0).shape, weightShape);
    if (rule.isRecorded) {
      const { eps = epsOf(rule.typeOf(0).dtype) } = rule.attributes;
      const axes = lastAxes(rule.typeOf(0).shape, normalizedShape);
      return recordedGradients(rule, { axes, affineShape: normalizedShape, eps, isCentred: false });
    }
    const operands = [upstream, rule.operand(0), rule.output(1)];
    const weight = rule.needs(0) && weightShape.length > 0 ? [rule.operand(1)] : [];
    return [
      rule.needs(0) ? apply(rmsNormGradient, [...operands, ...weight], { normalizedShape }) : undefined,
      rule.needs(1) ? apply(weightGradient, operands, { normalizedShape, dtypes: [dtype] }) : undefined,
    ];
  },
  lower(lowering, operands, outputs, attributes) {
    const inputs = operands.map((_, index) => arrayAt(operands, index));
    const { shape, dtype } = arrayAt(operands, 0);
    const { eps = epsOf(dtype) } = attributes;
    const normalizedShape = normalizedShapeOf(attributes, shape, inputs[1]?.shape);
    lowerRows(lowering, {
      kernel: forwardKernel(...inputs.map((input) => input.dtype)),
      shape,
      axes: lastAxes(shape, normalizedShape),
      inputs,
      outputs,
      scalars: [1 / sizeOf(normalizedShape), eps],
    });
  },
};
