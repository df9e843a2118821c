/**
 * Scaled dot product attention: softmax(scale · q · kᵀ + mask) · v, forward and backward in one launch each.
 *
 * The kernel op keeps rows before heads, [batch…, rows, heads, width], as projections make them and take them: so the
 * result is free to be seen as [batch…, rows, heads · width], and so are the gradients. The op that users call has PyTorch's
 * axes, and sees its operands so.
 */

import { HoldfastError } from "../../errors/index.js";
import { type Dtype, dtypes, promote } from "../../ir/index.js";
import { copyArray } from "../copy.js";
import type { DeviceArray } from "../device-array.js";
import { fitToOperand } from "../gradients.js";
import { arrayAt, type KernelOp, type Lowering, type OperandType, typeAt, type ValueType } from "../op.js";
import { fillWith } from "../reduction/reduce.js";
import { broadcastShapes, type Shape, sizeOf } from "../shape.js";
import { type AttentionSizes, maskOf, operandOf } from "./operands.js";

export type AttentionAttributes = {
  /** Row i sees columns 0 to i. */
  readonly isCausal?: boolean;
  /** The factor of q · kᵀ; 1/√width unless given. */
  readonly scale?: number;
};

const queryShape = ({ batch, rows, heads, width }: AttentionSizes): Shape => [...batch, rows, heads, width];
const keyShape = ({ batch, columns, heads, width }: AttentionSizes): Shape => [
  ...batch,
  columns,
  heads,
  width,
];
const valueShape = ({ batch, columns, heads, valueWidth }: AttentionSizes): Shape => [
  ...batch,
  columns,
  heads,
  valueWidth,
];
const outShape = ({ batch, rows, heads, valueWidth }: AttentionSizes): Shape => [
  ...batch,
  rows,
  heads,
  valueWidth,
];
const scoreShape = ({ batch, heads, rows, columns }: AttentionSizes): Shape => [
  ...batch,
  heads,
  rows,
  columns,
];

/** The sizes of operands with the axes [batch…, rows, heads, width]. */
function sizesOf(query: Shape, key: Shape, value: Shape): AttentionSizes {
  const outer = broadcastShapes(
    "attention",
    [query, key, value].map((shape) => [...shape.slice(0, -3), shape.at(-2) ?? 1]),
  );
  return {
    batch: outer.slice(0, -1),
    heads: outer.at(-1) ?? 1,
    rows: query.at(-3) ?? 1,
    columns: key.at(-3) ?? 1,
    width: query.at(-1) ?? 1,
    valueWidth: value.at(-1) ?? 1,
  };
}

export function computeOf(dtype: Dtype): "f32" | "f64" {
  return dtype === "f64" ? "f64" : "f32";
}

/**
 * Operands: query [batch…, rows, heads, width], key [batch…, columns, heads, width], value [batch…, columns, heads, width
 * of values], and a mask or none, which is added to the scores and stretches to [batch…, heads, rows, columns]. The second
 * output is the probabilities, for backward.
 */
export const attention: KernelOp<AttentionAttributes> = {
  kind: "kernel",
  name: "attention",
  infer(operands) {
    const [query, key, value] = threeOf("attention", operands);
    const sizes = sizesOf(query.shape, key.shape, value.shape);
    const dtype = attentionDtype("attention", operands);
    return [
      { shape: outShape(sizes), dtype },
      { shape: scoreShape(sizes), dtype: computeOf(dtype) },
    ];
  },
  saves: () => ({ operands: [0, 1, 2], outputs: [1] }),
  gradient(rule) {
    const [out, query, key, value, scores] = [
      rule.upstream,
      rule.operand(0),
      rule.operand(1),
      rule.operand(2),
      rule.output(1),
    ];
    const attributes = { ...rule.attributes, givesScores: rule.needs(3) };
    const gradients = rule.applyAll(attentionGradient, [out, query, key, value, scores], attributes);
    return gradients.map((gradient, index) =>
      rule.needs(index) ? fitToOperand(rule, gradient, index) : undefined,
    );
  },
  lower(lowering, operands, outputs, attributes) {
    const [query, key, value] = [arrayAt(operands, 0), arrayAt(operands, 1), arrayAt(operands, 2)];
    lowerAttention(lowering, { query, key, value, mask: operands[3] }, outputs, attributes);
  },
};

export interface AttentionArrays {
  readonly query: DeviceArray;
  readonly key: DeviceArray;
  readonly value: DeviceArray;
}

/** Fills the result and the probabilities. */
export function lowerAttention(
  lowering: Lowering,
  { query, key, value, mask: added }: AttentionArrays & { readonly mask?: DeviceArray | number | undefined },
  [output, probabilities]: readonly DeviceArray[],
  { isCausal = false, scale }: AttentionAttributes,
): void {
  if (!output || !probabilities) return;
  const sizes = sizesOf(query.shape, key.shape, value.shape);
  const dtype = computeOf(output.dtype);
  const target = storedAs(lowering, output, dtype);
  const [q, k, v] = [
    operandOf(lowering, query, queryShape(sizes), dtype),
    operandOf(lowering, key, keyShape(sizes), dtype),
    operandOf(lowering, value, valueShape(sizes), dtype),
  ];
  const out = operandOf(lowering, target, target.shape, target.dtype);
  const mask = typeof added === "object" ? maskOf(lowering, added, sizes, dtype) : undefined;
  if (!q || !k || !v || !out || !probabilities.storage) {
    // Nothing is attended to, or nothing of it is wanted.
    for (const array of [output, probabilities]) fillWith(lowering, array, 0);
    return;
  }
  lowering.attention({
    ...{ ...kernelShape(sizes, dtype), resultDtype: target.dtype },
    ...{ query: q, key: k, value: v, out, probabilities: probabilities.storage },
    ...(mask && { mask }),
    scale: scale ?? 1 / Math.sqrt(sizes.width),
    isCausal,
  });
  if (target !== output) copyArray(lowering, target, output);
}

/** The array itself, or one of the computation's dtype to be converted afterwards, where attention stores no half floats. */
function storedAs(lowering: Lowering, array: DeviceArray, dtype: "f32" | "f64"): DeviceArray {
  const isStored = array.dtype === dtype || lowering.backend.capabilities.storesHalfAttention;
  return isStored ? array : lowering.scratchArray(array.shape, dtype);
}

function kernelShape({ batch, ...sizes }: AttentionSizes, dtype: "f32" | "f64") {
  return { ...sizes, dtype, batch: sizeOf(batch) };
}

type GradientAttributes = AttentionAttributes & {
  /** Is the gradient of the scores wanted too? It is what a mask gains. */
  readonly givesScores: boolean;
};

/** Operands: the upstream gradient, query, key, value, probabilities. Outputs: what each gains, before stretching. */
const attentionGradient: KernelOp<GradientAttributes> = {
  kind: "kernel",
  name: "attentionGradient",
  noGradient: "gradients of gradients are not recorded",
  infer([, ...operands], { givesScores }) {
    const [query, key, value] = threeOf("attentionGradient", operands);
    const sizes = sizesOf(query.shape, key.shape, value.shape);
    const dtype = attentionDtype("attentionGradient", operands);
    const shapes = [queryShape(sizes), keyShape(sizes), valueShape(sizes)];
    return [
      ...shapes.map((shape) => ({ shape, dtype })),
      ...(givesScores ? [{ shape: scoreShape(sizes), dtype: computeOf(dtype) }] : []),
    ];
  },
  lower(lowering, operands, outputs, attributes) {
    const [upstream, query, key, value, probabilities] = operands.map((_, index) => arrayAt(operands, index));
    if (!upstream || !query || !key || !value || !probabilities) return;
    lowerAttentionGradient(lowering, { upstream, query, key, value, probabilities }, outputs, attributes);
  },
};

/** Fills what query, key and value gain, and the scores where a fourth output is given. */
export function lowerAttentionGradient(
  lowering: Lowering,
  given: AttentionArrays & { readonly upstream: DeviceArray; readonly probabilities: DeviceArray },
  outputs: readonly DeviceArray[],
  { isCausal = false, scale }: AttentionAttributes,
): void {
  const { upstream, query, key, value, probabilities } = given;
  const sizes = sizesOf(query.shape, key.shape, value.shape);
  const dtype = computeOf(probabilities.dtype);
  const made = outputs.slice(0, 3).map((output) => storedAs(lowering, output, dtype));
  const scores = outputs[3] ?? lowering.scratchArray(scoreShape(sizes), dtype);
  const [queryGradient, keyGradient, valueGradient] = made.map((array) =>
    operandOf(lowering, array, array.shape, array.dtype),
  );
  const seen = {
    query: operandOf(lowering, query, queryShape(sizes), dtype),
    key: operandOf(lowering, key, keyShape(sizes), dtype),
    value: operandOf(lowering, value, valueShape(sizes), dtype),
    outGradient: operandOf(lowering, upstream, outShape(sizes), dtype),
  };
  const problem = { ...seen, queryGradient, keyGradient, valueGradient };
  if (!isWhole(problem) || !probabilities.storage || !scores.storage) {
    for (const output of outputs) fillWith(lowering, output, 0);
    return;
  }
  lowering.attentionBackward({
    ...{ ...kernelShape(sizes, dtype), resultDtype: made[0]?.dtype ?? dtype },
    ...problem,
    ...{ probabilities: probabilities.storage, scoreGradient: scores.storage },
    scale: scale ?? 1 / Math.sqrt(sizes.width),
    isCausal,
  });
  for (const [index, array] of made.entries()) {
    const output = outputs[index];
    if (output && output !== array) copyArray(lowering, array, output);
  }
}

type Whole<T> = { readonly [K in keyof T]: Exclude<T[K], undefined> };

/** Has every operand memory? */
function isWhole<T extends object>(operands: T): operands is T & Whole<T> {
  return Object.values(operands).every((operand) => operand !== undefined);
}

function threeOf(op: string, operands: readonly OperandType[]): [ValueType, ValueType, ValueType] {
  return [typeAt(op, operands, 0), typeAt(op, operands, 1), typeAt(op, operands, 2)];
}

/** The dtype in which query, key and value meet. */
export function attentionDtype(op: string, operands: readonly OperandType[]): Dtype {
  const types = threeOf(op, operands);
  const dtype = types.map((type) => type.dtype).reduce(promote);
  if (dtypes[dtype].kind === "float") return dtype;
  throw new HoldfastError(
    "BAD_DTYPE",
    `${op} of ${types.map((type) => type.dtype).join(", ")}: products need floats. Convert with to("f32").`,
    { numbers: { op } },
  );
}
