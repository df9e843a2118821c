/**
 * Attention with dropout in one kernel: no probability is in memory. A bit for each of them stays for backward, if these are few; otherwise
 * backward draws again. The numbers are those of the op `dropout` on the probabilities, with aligned rows.
 */

import { keptBitsShape, storesKeptBits } from "../../kernels/index.js";
import { fitToOperand } from "../gradients.js";
import { arrayAt, type GradientRule, type Gradients, type KernelOp, typeAt, type ValueType } from "../op.js";
import { dropoutGradient, dropsAny, requireDropout, reserveDraw } from "../random/dropout.js";
import { fillWith } from "../reduction/reduce.js";
import {
  type AttentionDropoutAttributes,
  attention,
  attentionGradient,
  kernelShape,
  lowerAttention,
  queryKeyValueTypes,
  sizesOf,
} from "./attention.js";
import { recordedAttentionGradient } from "./recorded-gradient.js";

const name = "fusedDropoutAttention";
const maskIndex = 4;

/**
 * Operands: query, key and value as of `attention`, the device's random state, which advances by one draw, and an optional mask of
 * floats. The second output is the statistics of rows; the third is what backward needs to drop the same: bits, or the draw. Bits are followed
 * by the draw, for a recorded gradient.
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
      ...(dropsAny(attributes.p) && storesKeptBits(sizes) ? [bits, state] : [state]),
    ];
  },
  saves: ({ length }) => ({
    operands: length > maskIndex ? [0, 1, 2, maskIndex] : [0, 1, 2],
    outputs: [0, 1, 2, 3],
  }),
  gradient(rule) {
    const masks = rule.operandCount > maskIndex ? [rule.operand(maskIndex)] : [];
    if (rule.isRecorded) return recordedGradient(rule);
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
  lower(lowering, operands, [output, statistics, kept, drawn], { p, ...attributes }) {
    const [query, key, value] = [arrayAt(operands, 0), arrayAt(operands, 1), arrayAt(operands, 2)];
    const state = arrayAt(operands, 3);
    if (!output || !statistics || !kept) return;
    const isDrawn = dropsAny(p) && statistics.storage !== undefined && key.storage !== undefined;
    if (!isDrawn && drawn) fillWith(lowering, kept, 0);
    reserveDraw(lowering, state, drawn ?? kept, isDrawn);
    const dropout = isDrawn ? { draw: drawn ?? kept, ...(drawn && { bits: kept }), p } : undefined;
    const arrays = { query, key, value, mask: operands[maskIndex], dropout };
    lowerAttention(lowering, arrays, [output, statistics], attributes);
  },
};

/** Draws the numbers of the forward pass again, for whole probabilities. */
function recordedGradient<V>(rule: GradientRule<V, AttentionDropoutAttributes>): Gradients<V> {
  const { apply, attributes } = rule;
  const [query, key, value] = [rule.operand(0), rule.operand(1), rule.operand(2)];
  const mask = rule.operandCount > maskIndex ? rule.operand(maskIndex) : undefined;
  const draw = rule.output(rule.outputTypes.length - 1);
  const [ofQuery, ofKey, ofValue, ofMask] = recordedAttentionGradient(
    rule,
    { query, key, value, mask },
    attributes,
    (probabilities) => apply(dropoutGradient, [probabilities, draw], { p: attributes.p, alignsRows: true }),
  );
  return [ofQuery, ofKey, ofValue, undefined, ofMask].map((gradient, index) =>
    gradient !== undefined && rule.needs(index) ? fitToOperand(rule, gradient, index) : undefined,
  );
}
