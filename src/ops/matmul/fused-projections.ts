/** Several linear layers of one input in one GEMM, such as the query, key and value projections of attention. */

import { copyArray } from "../copy.js";
import { contiguousStrides, type DeviceArray } from "../device-array.js";
import { fitToOperand } from "../gradients.js";
import { permute, reshape } from "../movement/reshape.js";
import { select, slice } from "../movement/slice.js";
import { arrayAt, type KernelOp, type Lowering, type NoAttributes, type OperandType, typeAt } from "../op.js";
import { badShape, formatShape, isSameShape, type Shape, sizeOf } from "../shape.js";
import { lowerGemm } from "./gemm.js";
import { asRows, linear } from "./matmul.js";
import { promotedFloatDtype } from "./promoted-dtype.js";
import { stackStrided } from "./stack-strided.js";

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
 * Weights at equal distances in memory, such as the parameters of one module, are not copied.
 */
export const fusedProjections: KernelOp<NoAttributes> = {
  kind: "kernel",
  name: "fusedProjections",
  dependsOnAddresses: true,
  infer(operands) {
    const { outer, layers, out } = sizesOf(operands);
    return [{ shape: [...outer, layers, out], dtype: promotedFloatDtype("fusedProjections", operands) }];
  },
  saves([needsX = false, ...needsWeights]) {
    const weightIndices = needsWeights.map((_, layer) => 1 + layer);
    return { operands: [...(needsWeights.includes(true) ? [0] : []), ...(needsX ? weightIndices : [])] };
  },
  gradient(rule) {
    const { apply, upstream } = rule;
    const [layers = 0, out = 0] = rule.valueType(upstream).shape.slice(-2);
    const outer = rule.typeOf(0).shape.slice(0, -1);
    const weightIndices = Array.from({ length: layers }, (_, layer) => 1 + layer);
    const inputGradient = () => {
      // All layers' outputs are one row, and so are all weights of one input element.
      const concatenated = apply(
        concatWeights,
        weightIndices.map((index) => rule.operand(index)),
      ); // [in, layers · out]
      const flat = apply(reshape, [upstream], { shape: [...outer, layers * out] });
      return apply(linear, [flat, concatenated], {});
    };
    const stackedGradients = () => {
      const flat = apply(reshape, [upstream], { shape: [...outer, layers * out] });
      return apply(weightGradients, [rule.operand(0), flat], { layers }); // [layers, in, out]
    };
    const stacked = weightIndices.some((index) => rule.needs(index)) ? stackedGradients() : undefined;
    return [
      rule.needs(0) ? fitToOperand(rule, inputGradient(), 0) : undefined,
      ...weightIndices.map((index) =>
        stacked !== undefined && rule.needs(index)
          ? fitToOperand(rule, apply(select, [stacked], { axis: 0, index: index - 1 }), index)
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
const weightGradients: KernelOp<{ readonly layers: number }> = {
  kind: "kernel",
  name: "weightGradients",
  saves: ([x, gradient]) => ({ operands: [...(gradient ? [0] : []), ...(x ? [1] : [])] }),
  gradient(rule) {
    const { apply } = rule;
    const [layers = 0, width = 0, out = 0] = rule.valueType(rule.upstream).shape;
    const byInput = apply(permute, [rule.upstream], { axes: [1, 0, 2] }); // [in, layers, out]
    const concatenated = apply(reshape, [byInput], { shape: [width, layers * out] });
    return [
      rule.needs(0) ? fitToOperand(rule, apply(linear, [rule.operand(1), concatenated], {}), 0) : undefined,
      rule.needs(1)
        ? fitToOperand(rule, apply(linear, [rule.operand(0), concatenated], { layout: "inOut" }), 1)
        : undefined,
    ];
  },
  infer(operands, { layers }) {
    const [x, gradient] = [0, 1].map((index) => typeAt("weightGradients", operands, index).shape);
    const shape = [layers, x?.at(-1) ?? 0, (gradient?.at(-1) ?? 0) / layers];
    return [{ shape, dtype: promotedFloatDtype("weightGradients", operands) }];
  },
  lower(lowering, operands, [output]) {
    if (!output?.storage) return;
    const [x, gradient] = [asRows(lowering, arrayAt(operands, 0)), asRows(lowering, arrayAt(operands, 1))];
    const [layers = 0, width = 0, out = 0] = output.shape;
    const rows = x.shape[0] ?? 0;
    const [rowStride = 0, columnStride = 0] = gradient.strides;
    const left = { ...x, shape: [width, rows], strides: x.strides.toReversed() };
    const right = {
      ...gradient,
      shape: [layers, rows, out],
      strides: [out * columnStride, rowStride, columnStride],
    };
    if (hasNativeBatchedGemm(lowering, left, right, output)) {
      const shared = { ...left, shape: [layers, width, rows], strides: [0, ...left.strides] };
      lowerGemm(lowering, shared, right, output);
      return;
    }
    // One wide GEMM, then a copy of its columns by layer. cuBLAS leaves most of a GPU idle on a batch of narrow GEMMs.
    const concatenated = lowering.scratchArray([width, layers * out], output.dtype);
    lowerGemm(lowering, left, gradient, concatenated);
    const byLayer = { ...concatenated, shape: output.shape, strides: [out, layers * out, 1] };
    copyArray(lowering, byLayer, output);
  },
};

/** True if a native GPU kernel computes the batched GEMM: it fills the device with many narrow GEMMs as well as with a wide one. */
function hasNativeBatchedGemm(
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

/** Concatenates weights [in, out] to one matrix [in, layers · out]. */
const concatWeights: KernelOp<NoAttributes> = {
  kind: "kernel",
  name: "concatWeights",
  dependsOnAddresses: true,
  gradient(rule) {
    const layers = Array.from({ length: rule.operandCount }, (_, layer) => layer);
    return layers.map((layer) => {
      const out = rule.typeOf(layer).shape[1] ?? 0;
      const ranges = [null, [layer * out, (layer + 1) * out]] as const;
      return rule.needs(layer)
        ? fitToOperand(rule, rule.apply(slice, [rule.upstream], { ranges }), layer)
        : undefined;
    });
  },
  infer(operands) {
    const [width = 0, out = 0] = typeAt("concatWeights", operands, 0).shape;
    return [{ shape: [width, operands.length * out], dtype: promotedFloatDtype("concatWeights", operands) }];
  },
  lower(lowering, operands, [output]) {
    if (!output) return;
    const weights = operands.map((_, layer) => arrayAt(operands, layer));
    const [width = 0, out = 0] = weights[0]?.shape ?? [];
    const stacked = stackStrided(lowering, weights, [width, out]);
    const [layerStride = 0, rowStride = 0, columnStride = 0] = stacked.strides;
    const shape = [width, weights.length, out];
    copyArray(
      lowering,
      { ...stacked, shape, strides: [rowStride, layerStride, columnStride] },
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
