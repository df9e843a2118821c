/**
 * Attention whose query, key and value lie in one tensor, as one product of all three projections makes them; and what
 * they gain lies in one tensor too, so that one product goes back.
 */

import type { DeviceArray } from "../device-array.js";
import { viewStrided } from "../movement/part.js";
import { arrayAt, type KernelOp, type Lowering, type OperandType, typeAt, type ValueType } from "../op.js";
import { badShape, formatShape } from "../shape.js";
import {
  type AttentionArrays,
  type AttentionAttributes,
  attentionDtype,
  computeOf,
  lowerAttention,
  lowerAttentionGradient,
} from "./attention.js";

/**
 * Operands: query, key and value as [batch…, rows, 3, heads, width]. The result is [batch…, rows, heads, width]; the second
 * output is the probabilities, for backward.
 */
export const packedAttention: KernelOp<AttentionAttributes> = {
  kind: "kernel",
  name: "packedAttention",
  infer: (operands) => typesOf("packedAttention", operands),
  saves: () => ({ operands: [0], outputs: [1] }),
  gradient(rule) {
    const { apply, upstream, attributes } = rule;
    return [apply(packedAttentionGradient, [upstream, rule.operand(0), rule.output(1)], attributes)];
  },
  lower(lowering, operands, outputs, attributes) {
    lowerAttention(lowering, subexpressionsOf(lowering, arrayAt(operands, 0)), outputs, attributes);
  },
};

/** Operands: the upstream gradient, query, key and value in one, the probabilities. */
const packedAttentionGradient: KernelOp<AttentionAttributes> = {
  kind: "kernel",
  name: "packedAttentionGradient",
  noGradient: "gradients of gradients are not recorded",
  infer(operands) {
    const { shape, dtype } = typeAt("packedAttentionGradient", operands, 1);
    return [{ shape, dtype }];
  },
  lower(lowering, operands, [output], attributes) {
    if (!output) return;
    const [upstream, probabilities] = [arrayAt(operands, 0), arrayAt(operands, 2)];
    const { query, key, value } = subexpressionsOf(lowering, output);
    const given = { ...subexpressionsOf(lowering, arrayAt(operands, 1)), upstream, probabilities };
    lowerAttentionGradient(lowering, given, [query, key, value], attributes);
  },
};

function typesOf(op: string, operands: readonly OperandType[]): readonly ValueType[] {
  const packed = typeAt(op, operands, 0);
  const { shape } = packed;
  const [rows = 0, three = 0, heads = 0, width = 0] = shape.slice(-4);
  if (shape.length < 4 || three !== 3 || width === 0) {
    throw badShape(
      op,
      `${formatShape(shape)}: query, key and value in one tensor are [batch…, rows, 3, heads, width], with a width of 1 or more.`,
    );
  }
  const batch = shape.slice(0, -4);
  const dtype = attentionDtype(op, [packed, packed, packed]);
  return [
    { shape: [...batch, rows, heads, width], dtype },
    { shape: [...batch, heads, rows, rows], dtype: computeOf(dtype) },
  ];
}

/** Query, key and value, each [batch…, rows, heads, width], where they lie. */
function subexpressionsOf(lowering: Lowering, packed: DeviceArray): AttentionArrays {
  const axis = packed.shape.length - 3;
  const shape = packed.shape.filter((_, at) => at !== axis);
  const strides = packed.strides.filter((_, at) => at !== axis);
  const part = (index: number) =>
    viewStrided(lowering, packed, { shape, strides, offset: index * (packed.strides[axis] ?? 0) });
  return { query: part(0), key: part(1), value: part(2) };
}
