/**
 * Attention with dropout in one kernel: it draws again in backward, so no probability and no mask is in memory. The numbers are those of
 * the op `dropout` on the probabilities, with aligned rows.
 */

import { fitToOperand } from "../gradients.js";
import { arrayAt, type KernelOp, typeAt } from "../op.js";
import { dropsAny, requireDropout, reserveDraw } from "../random/dropout.js";
import {
  type AttentionDropoutAttributes,
  attention,
  attentionGradient,
  lowerAttention,
} from "./attention.js";

const name = "fusedDropoutAttention";
const maskIndex = 4;

/**
 * Operands: query, key and value as of `attention`, the device's random state, which advances by one draw, and an optional mask of
 * floats. The second output is the statistics of rows; the third is the random state of the draw.
 */
export const fusedDropoutAttention: KernelOp<AttentionDropoutAttributes> = {
  kind: "kernel",
  name,
  infer(operands, attributes) {
    const state = typeAt(name, operands, 3);
    requireDropout(name, state, attributes.p);
    return [...attention.infer(operands, attributes), state];
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
  lower(lowering, operands, [output, statistics, draw], { p, ...attributes }) {
    const [query, key, value] = [arrayAt(operands, 0), arrayAt(operands, 1), arrayAt(operands, 2)];
    const state = arrayAt(operands, 3);
    if (!output || !statistics || !draw?.storage || !state.storage) return;
    const isDrawn = dropsAny(p) && statistics.storage !== undefined && key.storage !== undefined;
    reserveDraw(lowering, state, draw, isDrawn);
    const dropout = isDrawn ? { draw, p } : undefined;
    const arrays = { query, key, value, mask: operands[maskIndex], dropout };
    lowerAttention(lowering, arrays, [output, statistics], attributes);
  },
};
