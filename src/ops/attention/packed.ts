/**
 * Attention whose query, key and value lie in one tensor, as one GEMM of all three projections writes them. Their gradients lie in one
 * tensor too, so that one GEMM computes the input's gradient and one the weight's.
 */

import type { DeviceArray } from "../device-array.js";
import { where } from "../elementwise/comparisons.js";
import { fitTo } from "../gradients.js";
import { viewStrided } from "../movement/part.js";
import {
  arrayAt,
  type CompositeOp,
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
  attentionDtype,
  computeOf,
  lowerAttention,
  lowerAttentionGradient,
} from "./attention.js";

/**
 * Operands: query, key and value as [batch…, rows, 3, heads, width], and an optional mask that broadcasts to [batch…, heads, rows,
 * rows]: booleans, true where a column takes part, or floats, which are added to the scores. The result is [batch…, rows, heads,
 * width].
 */
export const packedAttention: CompositeOp<AttentionAttributes> = {
  kind: "composite",
  name: "packedAttention",
  infer: (operands) => typesOf("packedAttention", operands).slice(0, 1),
  compose({ apply, typeOf }, [packed = 0, mask], attributes) {
    if (mask === undefined) return [apply(fusedPackedAttention, [packed], attributes)];
    const isBoolean = typeOf(mask).dtype === "bool";
    const added = isBoolean ? apply(where, [mask, 0, Number.NEGATIVE_INFINITY]) : mask;
    return [apply(fusedPackedAttention, [packed, added], attributes)];
  },
};

/** The same with a float mask or none. The second output is the probabilities, for backward. */
const fusedPackedAttention: KernelOp<AttentionAttributes> = {
  kind: "kernel",
  name: "fusedPackedAttention",
  infer: (operands) => typesOf("packedAttention", operands),
  saves: () => ({ operands: [0], outputs: [1] }),
  gradient(rule) {
    const { upstream, attributes } = rule;
    const operands = [upstream, rule.operand(0), rule.output(1)];
    const gradients = rule.applyAll(packedAttentionGradient, operands, {
      ...attributes,
      givesScores: rule.needs(1),
    });
    return gradients.map((gradient, index) => (rule.needs(index) ? fitTo(rule, gradient, index) : undefined));
  },
  lower(lowering, operands, outputs, attributes) {
    const arrays = unpack(lowering, arrayAt(operands, 0));
    lowerAttention(lowering, { ...arrays, mask: operands[1] }, outputs, attributes);
  },
};

type GradientAttributes = AttentionAttributes & {
  /** True if the gradient of the scores is needed too: it is the mask's. */
  readonly givesScores: boolean;
};

/** Operands: the upstream gradient, the packed query, key and value, the probabilities. */
const packedAttentionGradient: KernelOp<GradientAttributes> = {
  kind: "kernel",
  name: "packedAttentionGradient",
  noGradient: "gradients of gradients are not recorded",
  infer(operands, { givesScores }) {
    const { shape, dtype } = typeAt("packedAttentionGradient", operands, 1);
    const scores = typeAt("packedAttentionGradient", operands, 2);
    return [{ shape, dtype }, ...(givesScores ? [scores] : [])];
  },
  lower(lowering, operands, [output, ...scores], attributes) {
    if (!output) return;
    const [upstream, probabilities] = [arrayAt(operands, 0), arrayAt(operands, 2)];
    const arrays = { ...unpack(lowering, arrayAt(operands, 1)), upstream, probabilities };
    const { query, key, value } = unpack(lowering, output);
    lowerAttentionGradient(lowering, arrays, [query, key, value, ...scores], attributes);
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
  const scores = [...batch, heads, rows, rows];
  const mask = operands[1];
  if (isType(mask) && !isSameShape(broadcastShapes(op, [mask.shape, scores]), scores)) {
    throw badShape(
      op,
      `mask ${formatShape(mask.shape)} does not broadcast to the scores' ${formatShape(scores)}.`,
    );
  }
  const dtype = attentionDtype(op, [packed, packed, packed]);
  return [
    { shape: [...batch, rows, heads, width], dtype },
    { shape: scores, dtype: computeOf(dtype) },
  ];
}

/** Views of query, key and value, each [batch…, rows, heads, width]. */
function unpack(lowering: Lowering, packed: DeviceArray): AttentionArrays {
  const axis = packed.shape.length - 3;
  const shape = packed.shape.filter((_, index) => index !== axis);
  const strides = packed.strides.filter((_, index) => index !== axis);
  const view = (index: number) =>
    viewStrided(lowering, packed, { shape, strides, offset: index * (packed.strides[axis] ?? 0) });
  return { query: view(0), key: view(1), value: view(2) };
}
