/**
 * Scaled dot product attention: softmax(scale · q · kᵀ + mask) · v, forward and backward in one launch each.
 *
 * The kernel op has rows before heads, [batch…, rows, heads, width], like the projections before and after it. So its result and
 * its gradients are views [batch…, rows, heads · width] without a copy. The op for users has PyTorch's axes and permutes its operands.
 */

import { HoldfastError } from "../../errors/index.js";
import { type Dtype, dtypes, promote } from "../../ir/index.js";
import { copyArray } from "../copy.js";
import type { DeviceArray } from "../device-array.js";
import { fitToOperand } from "../gradients.js";
import {
  arrayAt,
  type GradientRule,
  type KernelOp,
  type Lowering,
  type OperandType,
  type SavedIndices,
  typeAt,
  type ValueType,
} from "../op.js";
import { dropsAny } from "../random/dropout.js";
import { fillWith } from "../reduction/reduce.js";
import { broadcastShapes, type Shape, sizeOf } from "../shape.js";
import { type AttentionSizes, attentionInput, attentionMask, attentionOperand } from "./operands.js";
import { recordedAttentionGradient } from "./recorded-gradient.js";

export type AttentionAttributes = {
  /** True if row i sees columns 0 to i only. */
  readonly isCausal?: boolean;
  /** The factor of q · kᵀ. Default: 1/√width. */
  readonly scale?: number;
  /** The values that stay for backward: the probabilities, or a number per row, from which they are computed again. */
  readonly keeps?: "probabilities" | "statistics";
  /** True if a head of keys and values may serve several neighbouring heads of queries. Needs `keeps: "statistics"`. */
  readonly enableGqa?: boolean;
};

export type AttentionDropoutAttributes = AttentionAttributes & {
  /** The probability that a probability is dropped. */
  readonly p: number;
};

const queryShape = ({ batch, rows, heads, width }: AttentionSizes): Shape => [...batch, rows, heads, width];
const keyShape = ({ batch, columns, keyHeads, width }: AttentionSizes): Shape => [
  ...batch,
  columns,
  keyHeads,
  width,
];
const valueShape = ({ batch, columns, keyHeads, valueWidth }: AttentionSizes): Shape => [
  ...batch,
  columns,
  keyHeads,
  valueWidth,
];
export const outShape = ({ batch, rows, heads, valueWidth }: AttentionSizes): Shape => [
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

/** The type of what stays for backward. */
export function keptType(
  sizes: AttentionSizes,
  dtype: Dtype,
  keeps: AttentionAttributes["keeps"],
): ValueType {
  const shape = scoreShape(sizes);
  return { shape: keeps === "statistics" ? shape.slice(0, -1) : shape, dtype: attentionCompute(dtype) };
}

/** The sizes of operands with the axes [batch…, rows, heads, width]. Without `enableGqa`, heads broadcast. */
export function sizesOf(query: Shape, key: Shape, value: Shape, enableGqa = false): AttentionSizes {
  const outer = broadcastShapes(
    "attention",
    [query, key, value].map((shape) => [...shape.slice(0, -3), enableGqa ? 1 : (shape.at(-2) ?? 1)]),
  );
  const heads = (enableGqa ? query.at(-2) : outer.at(-1)) ?? 1;
  return {
    batch: outer.slice(0, -1),
    heads,
    keyHeads: enableGqa ? (key.at(-2) ?? 1) : heads,
    rows: query.at(-3) ?? 1,
    columns: key.at(-3) ?? 1,
    width: query.at(-1) ?? 1,
    valueWidth: value.at(-1) ?? 1,
  };
}

export function attentionCompute(dtype: Dtype): "f32" | "f64" {
  return dtype === "f64" ? "f64" : "f32";
}

/**
 * Operands: query [batch…, rows, heads, width], key [batch…, columns, heads, width], value [batch…, columns, heads, valueWidth],
 * and an optional mask. The mask broadcasts to [batch…, heads, rows, columns] and is added to the scores. The second output is what
 * stays for backward.
 */
export const attention: KernelOp<AttentionAttributes> = {
  kind: "kernel",
  name: "attention",
  infer(operands, { keeps, enableGqa }) {
    const [query, key, value] = queryKeyValueTypes("attention", operands);
    const sizes = sizesOf(query.shape, key.shape, value.shape, enableGqa);
    const dtype = attentionDtype("attention", operands);
    return [{ shape: outShape(sizes), dtype }, keptType(sizes, dtype, keeps)];
  },
  saves: ({ length }, { keeps }) => savedByAttention(length, keeps, 3),
  gradient(rule) {
    const { upstream, attributes } = rule;
    if (rule.isRecorded) {
      const [query, key, value] = [rule.operand(0), rule.operand(1), rule.operand(2)];
      const mask = rule.operandCount > 3 ? rule.operand(3) : undefined;
      return recordedAttentionGradient(rule, { query, key, value, mask }, attributes).map(
        (gradient, index) => (rule.needs(index) ? fitToOperand(rule, gradient, index) : undefined),
      );
    }
    const operands = [upstream, rule.operand(0), rule.operand(1), rule.operand(2), ...keptValues(rule, 3)];
    const gradients = rule.applyAll(attentionGradient, operands, {
      ...attributes,
      outputsScoreGradient: rule.needs(3),
    });
    return gradients.map((gradient, index) =>
      rule.needs(index) ? fitToOperand(rule, gradient, index) : undefined,
    );
  },
  lower(lowering, operands, outputs, attributes) {
    const [query, key, value] = [arrayAt(operands, 0), arrayAt(operands, 1), arrayAt(operands, 2)];
    lowerAttention(lowering, { query, key, value, mask: operands[3] }, outputs, attributes);
  },
};

/** The indices that stay for backward. The mask, if there is one, is the operand at `maskIndex`, after query, key and value. */
export function savedByAttention(
  operandCount: number,
  keeps: AttentionAttributes["keeps"],
  maskIndex: number,
): SavedIndices {
  const inputs = Array.from({ length: maskIndex }, (_, index) => index);
  // A recorded gradient computes the probabilities again, with the mask.
  const operands = operandCount > maskIndex ? [...inputs, maskIndex] : inputs;
  return { operands, outputs: keeps === "statistics" ? [0, 1] : [1] };
}

/** What the gradient reads besides query, key and value: the probabilities; or the statistics, the result, and the mask if there is one. */
export function keptValues<V>(
  rule: GradientRule<V, AttentionAttributes>,
  maskIndex: number,
): readonly (V | number)[] {
  if (rule.attributes.keeps !== "statistics") return [rule.output(1)];
  const masks = rule.operandCount > maskIndex ? [rule.operand(maskIndex)] : [];
  return [rule.output(1), rule.output(0), ...masks];
}

export interface AttentionArrays {
  readonly query: DeviceArray;
  readonly key: DeviceArray;
  readonly value: DeviceArray;
}

/** Dropout inside of the kernels, which needs statistics: the draw, the bits of kept probabilities, or both. */
interface DropoutArrays {
  readonly draw?: DeviceArray | undefined;
  readonly bits?: DeviceArray | undefined;
  readonly p: number;
}

/** What stays for backward is either a draw, with the shape of a random state, or bits. */
export function isDrawArray({ shape }: DeviceArray): boolean {
  return shape.length === 1;
}

/** Computes the result, and what stays for backward. */
export function lowerAttention(
  lowering: Lowering,
  {
    query,
    key,
    value,
    mask: maskOperand,
    dropout,
  }: AttentionArrays & {
    readonly mask?: DeviceArray | number | undefined;
    readonly dropout?: DropoutArrays | undefined;
  },
  [output, kept]: readonly DeviceArray[],
  { isCausal = false, scale, keeps, enableGqa }: AttentionAttributes,
): void {
  if (!output || !kept) return;
  const sizes = sizesOf(query.shape, key.shape, value.shape, enableGqa);
  const dtype = attentionCompute(output.dtype);
  const target = resultArray(lowering, output, dtype);
  const read = inputDtype([query, key, value, output], keeps);
  const [q, k, v] = [
    attentionInput(lowering, query, queryShape(sizes), read ?? dtype),
    attentionInput(lowering, key, keyShape(sizes), read ?? dtype),
    attentionInput(lowering, value, valueShape(sizes), read ?? dtype),
  ];
  const out = attentionOperand(lowering, target, target.shape, target.dtype);
  const mask =
    typeof maskOperand === "object" ? attentionMask(lowering, maskOperand, sizes, dtype) : undefined;
  if (!q || !k || !v || !out || !kept.storage) {
    // An operand or the result is empty.
    for (const array of [output, kept]) fillWith(lowering, array, 0);
    return;
  }
  lowering.attention({
    ...{ ...kernelShape(sizes, dtype), resultDtype: target.dtype },
    ...{ query: q, key: k, value: v, out },
    ...(keeps === "statistics"
      ? { statistics: kept.storage, ...problemOfDropout(dropout) }
      : { probabilities: kept.storage }),
    ...(mask && { mask }),
    scale: scale ?? 1 / Math.sqrt(sizes.width),
    isCausal,
  });
  if (target !== output) copyArray(lowering, target, output);
}

/** The 16-bit dtype that the kernels read as it is: that of all arrays, if scores are not stored. */
function inputDtype(
  [first, ...others]: readonly DeviceArray[],
  keeps: AttentionAttributes["keeps"],
): "f16" | "bf16" | undefined {
  const dtype = first?.dtype;
  const isRead = keeps === "statistics" && others.every((other) => other.dtype === dtype);
  return isRead && (dtype === "f16" || dtype === "bf16") ? dtype : undefined;
}

function problemOfDropout(dropout: DropoutArrays | undefined) {
  if (!dropout) return {};
  const [randomState, keptBits] = [dropout.draw?.storage, dropout.bits?.storage];
  return { dropoutP: dropout.p, ...(randomState && { randomState }), ...(keptBits && { keptBits }) };
}

/** The array that attention writes: `array` itself, or scratch memory of the compute dtype if it can't store half floats. */
function resultArray(lowering: Lowering, array: DeviceArray, dtype: "f32" | "f64"): DeviceArray {
  const isStorable = array.dtype === dtype || lowering.backend.capabilities.storesHalfAttention;
  return isStorable ? array : lowering.scratchArray(array.shape, dtype);
}

export function kernelShape({ batch, ...sizes }: AttentionSizes, dtype: "f32" | "f64") {
  return { ...sizes, dtype, batch: sizeOf(batch) };
}

type GradientAttributes = AttentionAttributes & {
  readonly p?: number;
  /** True if the gradient of the scores is an output too: it is the mask's gradient. */
  readonly outputsScoreGradient: boolean;
};

/**
 * Operands: the upstream gradient, query, key, value, and `keptValues`, or `keptWithDropout` if there is a probability `p`. Outputs:
 * their gradients, with the broadcast batch.
 */
export const attentionGradient: KernelOp<GradientAttributes> = {
  kind: "kernel",
  name: "attentionGradient",
  noGradient: "gradients of attention with dropout inside its kernel can't be differentiated again",
  infer([, ...operands], { outputsScoreGradient, enableGqa }) {
    const [query, key, value] = queryKeyValueTypes("attentionGradient", operands);
    const sizes = sizesOf(query.shape, key.shape, value.shape, enableGqa);
    const dtype = attentionDtype("attentionGradient", operands);
    const shapes = [queryShape(sizes), keyShape(sizes), valueShape(sizes)];
    return [
      ...shapes.map((shape) => ({ shape, dtype })),
      ...(outputsScoreGradient ? [{ shape: scoreShape(sizes), dtype: attentionCompute(dtype) }] : []),
    ];
  },
  lower(lowering, operands, outputs, attributes) {
    const [upstream, query, key, value, ...kept] = operands.map((_, index) => arrayAt(operands, index));
    if (!upstream || !query || !key || !value) return;
    lowerAttentionGradient(lowering, { upstream, query, key, value, kept }, outputs, attributes);
  },
};

/** Computes the gradients of query, key and value, and of the scores if there is a fourth output. */
export function lowerAttentionGradient(
  lowering: Lowering,
  inputs: AttentionArrays & { readonly upstream: DeviceArray; readonly kept: readonly DeviceArray[] },
  outputs: readonly DeviceArray[],
  { isCausal = false, scale, keeps, p, enableGqa }: AttentionAttributes & { readonly p?: number },
): void {
  const { upstream, query, key, value, kept } = inputs;
  const sizes = sizesOf(query.shape, key.shape, value.shape, enableGqa);
  const dtype = attentionCompute(kept[0]?.dtype ?? "f32");
  const targets = outputs.slice(0, 3).map((output) => resultArray(lowering, output, dtype));
  const [queryGradient, keyGradient, valueGradient] = targets.map((array) =>
    attentionOperand(lowering, array, array.shape, array.dtype),
  );
  const read = inputDtype([query, key, value, upstream], keeps) ?? dtype;
  const operands = {
    query: attentionInput(lowering, query, queryShape(sizes), read),
    key: attentionInput(lowering, key, keyShape(sizes), read),
    value: attentionInput(lowering, value, valueShape(sizes), read),
    outGradient: attentionInput(lowering, upstream, outShape(sizes), read),
  };
  const problem = { ...operands, queryGradient, keyGradient, valueGradient };
  const memory =
    keeps === "statistics" ? flashMemory(lowering, sizes, kept, p) : keptMemory(lowering, sizes, kept);
  if (!areDefined(problem) || !memory || outputs.some(({ storage }) => !storage)) {
    for (const output of outputs) fillWith(lowering, output, 0);
    return;
  }
  const scoreGradient = outputs[3]?.storage;
  lowering.attentionBackward({
    ...{ ...kernelShape(sizes, dtype), resultDtype: targets[0]?.dtype ?? dtype },
    ...problem,
    ...memory,
    ...(scoreGradient && { scoreGradient }),
    scale: scale ?? 1 / Math.sqrt(sizes.width),
    isCausal,
  });
  for (const [index, array] of targets.entries()) {
    const output = outputs[index];
    if (output && output !== array) copyArray(lowering, array, output);
  }
}

/** The probabilities, and scratch memory for the gradient of the scores. Undefined if they are empty. */
function keptMemory(lowering: Lowering, sizes: AttentionSizes, [probabilities]: readonly DeviceArray[]) {
  if (!probabilities?.storage) return undefined;
  const { storage } = lowering.scratchArray(scoreShape(sizes), probabilities.dtype);
  return storage && { probabilities: probabilities.storage, scoreGradient: storage };
}

/** The statistics, the result, what dropout has kept, and the mask, and scratch memory for the deltas. Undefined if they are empty. */
function flashMemory(
  lowering: Lowering,
  sizes: AttentionSizes,
  [statistics, result, ...others]: readonly DeviceArray[],
  p: number | undefined,
) {
  const [drawn, maskArray] = p === undefined ? [undefined, ...others] : others;
  const { shape, dtype } = keptType(sizes, statistics?.dtype ?? "f32", "statistics");
  const deltas = lowering.scratchArray(shape, dtype);
  const read = result && inputDtype([result], "statistics");
  const out = result && attentionInput(lowering, result, outShape(sizes), read ?? dtype);
  const mask = maskArray && attentionMask(lowering, maskArray, sizes, dtype);
  if (!statistics?.storage || !deltas.storage || !out) return undefined;
  const isDropped = drawn !== undefined && p !== undefined && dropsAny(p);
  const dropout = problemOfDropout(
    isDropped ? { ...(isDrawArray(drawn) ? { draw: drawn } : { bits: drawn }), p } : undefined,
  );
  return { statistics: statistics.storage, deltas: deltas.storage, out, ...(mask && { mask }), ...dropout };
}

type AllDefined<T> = { readonly [K in keyof T]: Exclude<T[K], undefined> };

/** True if no value is undefined: every operand has memory. */
function areDefined<T extends object>(operands: T): operands is T & AllDefined<T> {
  return Object.values(operands).every((operand) => operand !== undefined);
}

export function queryKeyValueTypes(
  op: string,
  operands: readonly OperandType[],
): [ValueType, ValueType, ValueType] {
  return [typeAt(op, operands, 0), typeAt(op, operands, 1), typeAt(op, operands, 2)];
}

/** The promoted dtype of query, key and value. */
export function attentionDtype(op: string, operands: readonly OperandType[]): Dtype {
  const types = queryKeyValueTypes(op, operands);
  const dtype = types.map((type) => type.dtype).reduce(promote);
  if (dtypes[dtype].kind === "float") return dtype;
  throw new HoldfastError(
    "BAD_DTYPE",
    `${op} of ${types.map((type) => type.dtype).join(", ")}: a matrix product needs floats. Convert with to("f32").`,
    { numbers: { op } },
  );
}
