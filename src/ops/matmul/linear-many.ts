/** Several linear layers of one input, such as the query, key and value of attention, in one product. */

import { copyArray } from "../copy.js";
import { contiguousStrides } from "../device-array.js";
import { contiguous } from "../elementwise/cast.js";
import { fitTo } from "../gradients.js";
import { permute, reshape } from "../movement/reshape.js";
import { select } from "../movement/slice.js";
import { arrayAt, type KernelOp, type NoAttributes, type OperandType, typeAt } from "../op.js";
import { badShape, formatShape, isSameShape, type Shape, sizeOf } from "../shape.js";
import { seenAsOne } from "./equal-arrays.js";
import { asRows, linear, productOverRows } from "./matmul.js";
import { meetingDtype } from "./meeting-dtype.js";
import { lowerProduct } from "./product.js";

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
export const linearMany: KernelOp<NoAttributes> = {
  kind: "kernel",
  name: "linearMany",
  looksAtAddresses: true,
  infer(operands) {
    const { outer, layers, out } = sizesOf(operands);
    return [{ shape: [...outer, layers, out], dtype: meetingDtype("linearMany", operands) }];
  },
  saves([ofX = false, ...ofWeights]) {
    const weights = ofWeights.map((_, layer) => 1 + layer);
    return { operands: [...(ofWeights.includes(true) ? [0] : []), ...(ofX ? weights : [])] };
  },
  gradient(rule) {
    const { apply, upstream } = rule;
    const [layers = 0, out = 0] = rule.valueType(upstream).shape.slice(-2);
    const outer = rule.typeOf(0).shape.slice(0, -1);
    const width = rule.typeOf(0).shape.at(-1) ?? 0;
    const places = Array.from({ length: layers }, (_, layer) => 1 + layer);
    const input = () => {
      // All layers' outputs are one long row, and so are all of their weights to one input.
      const side = apply(
        sideBySide,
        places.map((place) => rule.operand(place)),
      ); // [in, layers · out]
      return apply(linear, [apply(reshape, [upstream], { shape: [...outer, layers * out] }), side], {});
    };
    const weights = () => {
      // One wide product, and its columns taken apart: a batch of narrow ones would leave most of a GPU idle.
      const flat = apply(reshape, [upstream], { shape: [...outer, layers * out] });
      const wide = apply(productOverRows, [rule.operand(0), flat]); // [in, layers · out]
      const byLayer = apply(permute, [apply(reshape, [wide], { shape: [width, layers, out] })], {
        axes: [1, 0, 2],
      });
      return apply(contiguous, [byLayer]); // [layers, in, out]
    };
    const all = places.some((place) => rule.needs(place)) ? weights() : undefined;
    return [
      rule.needs(0) ? fitTo(rule, input(), 0) : undefined,
      ...places.map((place) =>
        all !== undefined && rule.needs(place)
          ? fitTo(rule, apply(select, [all], { axis: 0, index: place - 1 }), place)
          : undefined,
      ),
    ];
  },
  lower(lowering, operands, [output]) {
    if (!output?.storage) return;
    const { rows, width, layers, out } = sizesOf(operands);
    const x = asRows(lowering, arrayAt(operands, 0));
    const weights = operands.slice(1).map((_, layer) => arrayAt(operands, 1 + layer));
    lowerProduct(
      lowering,
      { ...x, shape: [layers, rows, width], strides: [0, ...x.strides] },
      seenAsOne(lowering, weights, [width, out]),
      { ...output, shape: [layers, rows, out], strides: [out, layers * out, 1] },
    );
  },
};

/** Weights [in, out] as one matrix [in, layers · out]. */
const sideBySide: KernelOp<NoAttributes> = {
  kind: "kernel",
  name: "sideBySide",
  looksAtAddresses: true,
  noGradient: "it is a part of one",
  infer(operands) {
    const [width = 0, out = 0] = typeAt("sideBySide", operands, 0).shape;
    return [{ shape: [width, operands.length * out], dtype: meetingDtype("sideBySide", operands) }];
  },
  lower(lowering, operands, [output]) {
    if (!output) return;
    const weights = operands.map((_, layer) => arrayAt(operands, layer));
    const [width = 0, out = 0] = weights[0]?.shape ?? [];
    const seen = seenAsOne(lowering, weights, [width, out]);
    const [step = 0, across = 0, along = 0] = seen.strides;
    const shape = [width, weights.length, out];
    copyArray(
      lowering.runtime,
      { ...seen, shape, strides: [across, step, along] },
      { ...output, shape, strides: contiguousStrides(shape) },
    );
  },
};

function sizesOf(operands: readonly OperandType[]): Sizes {
  const { shape } = typeAt("linearMany", operands, 0);
  const layers = operands.length - 1;
  if (shape.length === 0 || layers === 0) {
    throw badShape(
      "linearMany",
      `input ${formatShape(shape)} and ${layers} weights: the input is [rows…, in], and there is at least one weight.`,
    );
  }
  const width = shape.at(-1) ?? 0;
  const out = typeAt("linearMany", operands, 1).shape[1] ?? 0;
  for (let layer = 0; layer < layers; layer++) {
    const weight = typeAt("linearMany", operands, 1 + layer);
    if (isSameShape(weight.shape, [width, out])) continue;
    throw badShape(
      "linearMany",
      `weight ${layer} is ${formatShape(weight.shape)}: all of them are [in, out], and [${width}, ${out}] fits the input ` +
        `${formatShape(shape)}${layer === 0 ? "" : " and the first weight"}.`,
    );
  }
  const outer = shape.slice(0, -1);
  return { outer, rows: sizeOf(outer), width, layers, out };
}
