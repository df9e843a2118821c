/**
 * Attention on a packed tensor of query, key and value, as a fused projection computes it. The gradient is packed too, so one
 * GEMM computes the projection's gradient.
 */

import type { DeviceArray } from "../device-array.js";
import { viewStrided } from "../movement/strided-view.js";
import { arrayAt, type KernelOp, type Lowering, type OperandType, typeAt, type ValueType } from "../op.js";
import { badShape, formatShape } from "../shape.js";
import {
  type AttentionArrays,
  type AttentionAttributes,
  attentionCompute,
  attentionDtype,
  lowerAttention,
  lowerAttentionGradient,
} from "./attention.js";

/**
 * Operand: query, key and value as [batch…, rows, 3, heads, width]. The result is [batch…, rows, heads, width]. The second output
 * is the probabilities, for backward.
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
    lowerAttention(lowering, unpack(lowering, arrayAt(operands, 0)), outputs, attributes);
  },
};

/** Operands: the upstream gradient, the packed query, key and value, the probabilities. */
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
    const { query, key, value } = unpack(lowering, output);
    const inputs = { ...unpack(lowering, arrayAt(operands, 1)), upstream, probabilities };
    lowerAttentionGradient(lowering, inputs, [query, key, value], attributes);
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
    { shape: [...batch, heads, rows, rows], dtype: attentionCompute(dtype) },
  ];
}

/** Views of query, key and value, each [batch…, rows, heads, width]. */
function unpack(lowering: Lowering, packed: DeviceArray): AttentionArrays {
  const packedAxis = packed.shape.length - 3;
  const shape = packed.shape.toSpliced(packedAxis, 1);
  const strides = packed.strides.toSpliced(packedAxis, 1);
  const viewOf = (index: number) =>
    viewStrided(lowering, packed, { shape, strides, offset: index * (packed.strides[packedAxis] ?? 0) });
  return { query: viewOf(0), key: viewOf(1), value: viewOf(2) };
}
