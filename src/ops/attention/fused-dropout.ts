/**
 * Attention with dropout in one kernel: no probability is in memory. A bit for each of them stays for backward, if these are few; otherwise
 * backward draws again. The numbers are those of the op `dropout` on the probabilities, with aligned rows.
 */

import { keptBitsShape, storesKeptBits } from "../../kernels/index.js";
import type { DeviceArray } from "../device-array.js";
import { fitToOperand } from "../gradients.js";
import { arrayAt, type KernelOp, type Lowering, typeAt, type ValueType } from "../op.js";
import { dropsAny, requireDropout, reserveDraw } from "../random/dropout.js";
import { fillWith } from "../reduction/reduce.js";
import {
  type AttentionDropoutAttributes,
  attention,
  attentionGradient,
  isDrawArray,
  kernelShape,
  lowerAttention,
  queryKeyValueTypes,
  sizesOf,
} from "./attention.js";

const name = "fusedDropoutAttention";
const maskIndex = 4;

/**
 * Operands: query, key and value as of `attention`, the device's random state, which advances by one draw, and an optional mask of
 * floats. The second output is the statistics of rows; the third is what backward needs to drop the same: bits, or the draw.
 */
export const fusedDropoutAttention: KernelOp<AttentionDropoutAttributes> = {
  kind: "kernel",
  name,
  infer(operands, attributes) {
    const state = typeAt(name, operands, 3);
    requireDropout(name, state, attributes.p);
    const [query, key, value] = queryKeyValueTypes(name, operands);
    const sizes = sizesOf(query.shape, key.shape, value.shape, attributes.enableGqa);
    const bits: ValueType = { shape: keptBitsShape(kernelShape(sizes, "f32")), dtype: "i32" };
    return [
      ...attention.infer(operands, attributes),
      dropsAny(attributes.p) && storesKeptBits(sizes) ? bits : state,
    ];
  },
  saves: ({ length }) => ({
    operands: length > maskIndex ? [0, 1, 2, maskIndex] : [0, 1, 2],
    outputs: [0, 1, 2],
  }),
  gradient(rule) {
    const masks = rule.operandCount > maskIndex ? [rule.operand(maskIndex)] : [];
    const inputs = [rule.operand(0), rule.operand(1), rule.operand(2)];
    const kept = [rule.output(1), rule.output(0), rule.output(2), ...masks];
    const [query, key, value, mask] = rule.applyAll(attentionGradient, [rule.upstream, ...inputs, ...kept], {
      ...rule.attributes,
      outputsScoreGradient: rule.needs(maskIndex),
    });
    return [query, key, value, undefined, mask].map((gradient, index) =>
      gradient !== undefined && rule.needs(index) ? fitToOperand(rule, gradient, index) : undefined,
    );
  },
  lower(lowering, operands, [output, statistics, kept], { p, ...attributes }) {
    const [query, key, value] = [arrayAt(operands, 0), arrayAt(operands, 1), arrayAt(operands, 2)];
    const state = arrayAt(operands, 3);
    if (!output || !statistics || !kept) return;
    const isDrawn = dropsAny(p) && statistics.storage !== undefined && key.storage !== undefined;
    if (!isDrawn) fillWith(lowering, kept, 0);
    const dropout = isDrawn ? { ...drawFor(lowering, state, kept), p } : undefined;
    const arrays = { query, key, value, mask: operands[maskIndex], dropout };
    lowerAttention(lowering, arrays, [output, statistics], attributes);
  },
};

/** Reserves the draw of a forward pass: what stays for backward, or scratch memory next to the bits that do. */
function drawFor(lowering: Lowering, state: DeviceArray, kept: DeviceArray) {
  const isDraw = isDrawArray(kept);
  const draw = isDraw ? kept : lowering.scratchArray(state.shape, state.dtype);
  reserveDraw(lowering, state, draw, true);
  return isDraw ? { draw } : { draw, bits: kept };
}
