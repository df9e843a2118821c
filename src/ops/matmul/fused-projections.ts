/** Several linear layers of one input, such as the query, key and value of attention, in one product. */

import { copyArray } from "../copy.js";
import { contiguousStrides, type DeviceArray } from "../device-array.js";
import { fitToOperand } from "../gradients.js";
import { reshape } from "../movement/reshape.js";
import { select } from "../movement/slice.js";
import { arrayAt, type KernelOp, type Lowering, type NoAttributes, type OperandType, typeAt } from "../op.js";
import { badShape, formatShape, isSameShape, type Shape, sizeOf } from "../shape.js";
import { stackStrided } from "./equal-arrays.js";
import { lowerGemm } from "./gemm.js";
import { asRows, linear } from "./matmul.js";
import { meetingDtype } from "./meeting-dtype.js";

interface Sizes {
  readonly outer: Shape;
  readonly rows: number;
  readonly width: number;
  readonly layers: number;
  readonly out: number;
}

/**
 * Operands: x [rows…, in], then a weight [in, out] for each layer. `result[r, l] = x[r] · weight[l]`
 *
 * Weights that lie at equal steps in memory, as the parameters of one module do, are multiplied where they are.
 */
export const fusedProjections: KernelOp<NoAttributes> = {
  kind: "kernel",
  name: "fusedProjections",
  looksAtAddresses: true,
  infer(operands) {
    const { outer, layers, out } = sizesOf(operands);
    return [{ shape: [...outer, layers, out], dtype: meetingDtype("fusedProjections", operands) }];
  },
  saves([ofX = false, ...ofWeights]) {
    const weights = ofWeights.map((_, layer) => 1 + layer);
    return { operands: [...(ofWeights.includes(true) ? [0] : []), ...(ofX ? weights : [])] };
  },
  gradient(rule) {
    const { apply, upstream } = rule;
    const [layers = 0, out = 0] = rule.valueType(upstream).shape.slice(-2);
    const outer = rule.typeOf(0).shape.slice(0, -1);
    const places = Array.from({ length: layers }, (_, layer) => 1 + layer);
    const input = () => {
      // All layers' outputs are one long row, and so are all of their weights to one input.
      const side = apply(
        concatWeights,
        places.map((place) => rule.operand(place)),
      ); // [in, layers · out]
      return apply(linear, [apply(reshape, [upstream], { shape: [...outer, layers * out] }), side], {});
    };
    const weights = () => {
      const flat = apply(reshape, [upstream], { shape: [...outer, layers * out] });
      return apply(lowerWeightGradients, [rule.operand(0), flat], { layers }); // [layers, in, out]
    };
    const all = places.some((place) => rule.needs(place)) ? weights() : undefined;
    return [
      rule.needs(0) ? fitToOperand(rule, input(), 0) : undefined,
      ...places.map((place) =>
        all !== undefined && rule.needs(place)
          ? fitToOperand(rule, apply(select, [all], { axis: 0, index: place - 1 }), place)
          : undefined,
      ),
    ];
  },
  lower(lowering, operands, [output]) {
    if (!output?.storage) return;
    const { rows, width, layers, out } = sizesOf(operands);
    const x = asRows(lowering, arrayAt(operands, 0));
    const weights = operands.slice(1).map((_, layer) => arrayAt(operands, 1 + layer));
    lowerGemm(
      lowering,
      { ...x, shape: [layers, rows, width], strides: [0, ...x.strides] },
      stackStrided(lowering, weights, [width, out]),
      { ...output, shape: [layers, rows, out], strides: [out, layers * out, 1] },
    );
  },
};

/** Operands: x [rows…, in] and the gradient of all layers' outputs [rows…, layers · out]. `result[l] = xᵀ · gradient[l]` */
const lowerWeightGradients: KernelOp<{ readonly layers: number }> = {
  kind: "kernel",
  name: "lowerWeightGradients",
  noGradient: "it is a gradient itself",
  infer(operands, { layers }) {
    const [x, gradient] = [0, 1].map((index) => typeAt("lowerWeightGradients", operands, index).shape);
    const shape = [layers, x?.at(-1) ?? 0, (gradient?.at(-1) ?? 0) / layers];
    return [{ shape, dtype: meetingDtype("lowerWeightGradients", operands) }];
  },
  lower(lowering, operands, [output]) {
    if (!output?.storage) return;
    const [x, gradient] = [asRows(lowering, arrayAt(operands, 0)), asRows(lowering, arrayAt(operands, 1))];
    const [layers = 0, width = 0, out = 0] = output.shape;
    const rows = x.shape[0] ?? 0;
    const [along = 0, across = 0] = gradient.strides;
    const left = { ...x, shape: [width, rows], strides: x.strides.toReversed() };
    const right = { ...gradient, shape: [layers, rows, out], strides: [out * across, along, across] };
    if (isOneLaunch(lowering, left, right, output)) {
      const shared = { ...left, shape: [layers, width, rows], strides: [0, ...left.strides] };
      lowerGemm(lowering, shared, right, output);
      return;
    }
    // One wide product, and its columns taken apart: a library leaves most of a GPU idle over a batch of narrow ones.
    const wide = lowering.scratchArray([width, layers * out], output.dtype);
    lowerGemm(lowering, left, gradient, wide);
    const byLayer = { ...wide, shape: output.shape, strides: [out, layers * out, 1] };
    copyArray(lowering, byLayer, output);
  },
};

/** Are the products our own on a GPU, which fill it whether they are wide or many? */
function isOneLaunch(
  { backend }: Lowering,
  left: DeviceArray,
  right: DeviceArray,
  { dtype, shape, strides, storage }: DeviceArray,
): boolean {
  if (dtype !== "f32" || left.dtype !== dtype || right.dtype !== dtype) return false;
  if (!left.storage || !right.storage || !storage) return false;
  const [batch = 0, m = 0, n = 0] = shape;
  const [leftStep = 0, leftStride = 0] = left.strides;
  const [rightBatch = 0, rightStride = 0, rightStep = 0] = right.strides;
  if (leftStep !== 1 || rightStep !== 1) return false;
  return backend.hasNativeGemm({
    ...{ dtype, m, n, k: left.shape[1] ?? 0, batch },
    a: { storage: left.storage, rowStride: leftStride, isTransposed: true },
    b: { storage: right.storage, rowStride: rightStride, batchStride: rightBatch },
    c: { storage, rowStride: n, batchStride: strides[0] ?? 0 },
  });
}

/** Weights [in, out] as one matrix [in, layers · out]. */
const concatWeights: KernelOp<NoAttributes> = {
  kind: "kernel",
  name: "concatWeights",
  looksAtAddresses: true,
  noGradient: "it is a part of one",
  infer(operands) {
    const [width = 0, out = 0] = typeAt("concatWeights", operands, 0).shape;
    return [{ shape: [width, operands.length * out], dtype: meetingDtype("concatWeights", operands) }];
  },
  lower(lowering, operands, [output]) {
    if (!output) return;
    const weights = operands.map((_, layer) => arrayAt(operands, layer));
    const [width = 0, out = 0] = weights[0]?.shape ?? [];
    const seen = stackStrided(lowering, weights, [width, out]);
    const [step = 0, across = 0, along = 0] = seen.strides;
    const shape = [width, weights.length, out];
    copyArray(
      lowering,
      { ...seen, shape, strides: [across, step, along] },
      { ...output, shape, strides: contiguousStrides(shape) },
    );
  },
};

function sizesOf(operands: readonly OperandType[]): Sizes {
  const { shape } = typeAt("fusedProjections", operands, 0);
  const layers = operands.length - 1;
  if (shape.length === 0 || layers === 0) {
    throw badShape(
      "fusedProjections",
      `input ${formatShape(shape)} and ${layers} weights: the input is [rows…, in], and there is at least one weight.`,
    );
  }
  const width = shape.at(-1) ?? 0;
  const out = typeAt("fusedProjections", operands, 1).shape[1] ?? 0;
  for (let layer = 0; layer < layers; layer++) {
    const weight = typeAt("fusedProjections", operands, 1 + layer);
    if (isSameShape(weight.shape, [width, out])) continue;
    throw badShape(
      "fusedProjections",
      `weight ${layer} is ${formatShape(weight.shape)}: all of them are [in, out], and [${width}, ${out}] fits the input ` +
        `${formatShape(shape)}${layer === 0 ? "" : " and the first weight"}.`,
    );
  }
  const outer = shape.slice(0, -1);
  return { outer, rows: sizeOf(outer), width, layers, out };
}
