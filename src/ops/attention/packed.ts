/**
 * Attention on a packed tensor of query, key and value, as one GEMM of all three projections writes it. The gradient is packed too, so
 * one GEMM computes the input's gradient and one the weight's.
 */

import type { DeviceArray } from "../device-array.js";
import { where } from "../elementwise/comparisons.js";
import { fitToOperand } from "../gradients.js";
import { stack } from "../movement/cat.js";
import { select } from "../movement/slice.js";
import { viewStrided } from "../movement/strided-view.js";
import {
  arrayAt,
  type CompositeOp,
  type GradientRule,
  type Gradients,
  isType,
  type KernelOp,
  type Lowering,
  type OperandType,
  typeAt,
  type ValueType,
} from "../op.js";
import { badShape, broadcastShapes, formatShape, isSameShape } from "../shape.js";
import {
  type AttentionArrays,
  type AttentionAttributes,
  attentionCompute,
  attentionDtype,
  keptType,
  keptValues,
  lowerAttention,
  lowerAttentionGradient,
  savedByAttention,
} from "./attention.js";
import { recordedAttentionGradient } from "./recorded-gradient.js";

/**
 * Operands: query, key and value as [batch…, rows, 3, heads, width], and an optional mask that broadcasts to [batch…, heads, rows,
 * rows]. A mask of bool is true for the columns that a row sees; a mask of floats is added to the scores. The result is [batch…,
 * rows, heads, width].
 */
export const packedAttention: CompositeOp<AttentionAttributes> = {
  kind: "composite",
  name: "packedAttention",
  infer: (operands, attributes) => typesOf("packedAttention", operands, attributes).slice(0, 1),
  compose({ apply, typeOf }, [packed = 0, mask], attributes) {
    if (mask === undefined) return [apply(fusedPackedAttention, [packed], attributes)];
    const isBool = typeOf(mask).dtype === "bool";
    const additive = isBool ? apply(where, [mask, 0, Number.NEGATIVE_INFINITY]) : mask;
    return [apply(fusedPackedAttention, [packed, additive], attributes)];
  },
};

/** The same with an optional mask of floats. The second output is what stays for backward. */
const fusedPackedAttention: KernelOp<AttentionAttributes> = {
  kind: "kernel",
  name: "fusedPackedAttention",
  infer: (operands, attributes) => typesOf("packedAttention", operands, attributes),
  saves: ({ length }, { keeps }) => savedByAttention(length, keeps, 1),
  gradient(rule) {
    const { upstream, attributes } = rule;
    if (rule.isRecorded) return recordedGradient(rule);
    const operands = [upstream, rule.operand(0), ...keptValues(rule, 1)];
    const gradients = rule.applyAll(packedAttentionGradient, operands, {
      ...attributes,
      outputsScoreGradient: rule.needs(1),
    });
    return gradients.map((gradient, index) =>
      rule.needs(index) ? fitToOperand(rule, gradient, index) : undefined,
    );
  },
  lower(lowering, operands, outputs, attributes) {
    const arrays = unpack(lowering, arrayAt(operands, 0));
    lowerAttention(lowering, { ...arrays, mask: operands[1] }, outputs, attributes);
  },
};

/** The gradients made of entries that have gradients too. */
function recordedGradient<V>(rule: GradientRule<V, AttentionAttributes>): Gradients<V> {
  const axis = rule.typeOf(0).shape.length - 3;
  const [query = 0, key = 0, value = 0] = [0, 1, 2].map((index) =>
    rule.apply(select, [rule.operand(0)], { axis, index }),
  );
  const mask = rule.operandCount > 1 ? rule.operand(1) : undefined;
  const gradients = recordedAttentionGradient(rule, { query, key, value, mask }, rule.attributes);
  const [maskGradient] = gradients.slice(3);
  return [
    rule.needs(0) ? rule.apply(stack, gradients.slice(0, 3), { axis }) : undefined,
    maskGradient !== undefined && rule.needs(1) ? fitToOperand(rule, maskGradient, 1) : undefined,
  ];
}

type GradientAttributes = AttentionAttributes & {
  /** True if the gradient of the scores is an output too: it is the mask's gradient. */
  readonly outputsScoreGradient: boolean;
};

/** Operands: the upstream gradient, the packed query, key and value, and `keptValues`. */
const packedAttentionGradient: KernelOp<GradientAttributes> = {
  kind: "kernel",
  name: "packedAttentionGradient",
  noGradient: "a recorded gradient is composed of other ops",
  infer(operands, { outputsScoreGradient }) {
    const { shape, dtype } = typeAt("packedAttentionGradient", operands, 1);
    const [rows = 0, , heads = 0] = shape.slice(-4);
    const scores = { shape: [...shape.slice(0, -4), heads, rows, rows], dtype: attentionCompute(dtype) };
    return [{ shape, dtype }, ...(outputsScoreGradient ? [scores] : [])];
  },
  lower(lowering, operands, [output, ...scores], attributes) {
    if (!output) return;
    const [upstream, packed, ...kept] = operands.map((_, index) => arrayAt(operands, index));
    if (!upstream || !packed) return;
    const inputs = { ...unpack(lowering, packed), upstream, kept };
    const { query, key, value } = unpack(lowering, output);
    lowerAttentionGradient(lowering, inputs, [query, key, value, ...scores], attributes);
  },
};

function typesOf(
  op: string,
  operands: readonly OperandType[],
  { keeps }: AttentionAttributes,
): readonly ValueType[] {
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
  const scores = [...batch, heads, rows, rows];
  const mask = operands[1];
  if (isType(mask) && !isSameShape(broadcastShapes(op, [mask.shape, scores]), scores)) {
    throw badShape(
      op,
      `mask ${formatShape(mask.shape)} does not broadcast to the scores' ${formatShape(scores)}.`,
    );
  }
  const dtype = attentionDtype(op, [packed, packed, packed]);
  const sizes = { batch, heads, keyHeads: heads, rows, columns: rows, width, valueWidth: width };
  return [{ shape: [...batch, rows, heads, width], dtype }, keptType(sizes, dtype, keeps)];
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
