/** Describes arrays to the attention kernels: [batch, heads, rows, width] with strides, copied only if necessary. */

import type { Dtype } from "../../ir/index.js";
import type { AttentionInput, AttentionMask, AttentionOperand } from "../../kernels/index.js";
import { copyArray } from "../copy.js";
import { broadcastStrides, contiguousStrides, type DeviceArray } from "../device-array.js";
import { batchStrideOf } from "../matmul/gemm.js";
import type { Lowering } from "../op.js";
import type { Shape } from "../shape.js";

/** The sizes of one call. Queries are [batch…, rows, heads, width]; keys and values are [batch…, columns, heads, width]. */
export interface AttentionSizes {
  readonly batch: Shape;
  readonly heads: number;
  /** The heads of keys and values. */
  readonly keyHeads: number;
  readonly rows: number;
  readonly columns: number;
  readonly width: number;
  readonly valueWidth: number;
}

/** An array with the axes [batch…, rows, heads, width]. Its batch and heads broadcast to this shape. */
export function attentionOperand(
  lowering: Lowering,
  array: DeviceArray,
  shape: Shape,
  dtype: Dtype,
): AttentionOperand | undefined {
  const hasUnitStride = (strides: readonly number[]): boolean => shape.at(-1) === 1 || strides.at(-1) === 1;
  const { storage, strides, batchStride } = broadcastTo(lowering, array, shape, dtype, hasUnitStride);
  const [rowStride = 0, headStride = 0] = strides.slice(-3);
  return storage && { storage, batchStride, headStride, rowStride };
}

/** The same to read, with its dtype if that is a half float. */
export function attentionInput(
  lowering: Lowering,
  array: DeviceArray,
  shape: Shape,
  dtype: Dtype,
): AttentionInput | undefined {
  const operand = attentionOperand(lowering, array, shape, dtype);
  return operand && (dtype === "f16" || dtype === "bf16") ? { ...operand, dtype } : operand;
}

/** A mask that broadcasts to [batch…, heads, rows, columns]. */
export function attentionMask(
  lowering: Lowering,
  array: DeviceArray,
  { batch, heads, rows, columns }: AttentionSizes,
  dtype: Dtype,
): AttentionMask | undefined {
  const shape = [...batch, heads, rows, columns];
  // Converted before it broadcasts, so that a mask of keys stays small.
  const mask = array.dtype === dtype ? array : lowering.scratchArray(array.shape, dtype);
  if (mask !== array) copyArray(lowering, array, mask);
  const { storage, strides, batchStride } = broadcastTo(lowering, mask, shape, dtype, () => true);
  const [headStride = 0, rowStride = 0, columnStride = 0] = strides.slice(-3);
  return storage && { storage, batchStride, headStride, rowStride, columnStride };
}

/** An array broadcast to a shape, with one stride from batch to batch; a copy if its layout or dtype does not allow it. */
function broadcastTo(
  lowering: Lowering,
  array: DeviceArray,
  shape: Shape,
  dtype: Dtype,
  isReadable: (strides: readonly number[]) => boolean,
) {
  const batch = shape.slice(0, -3);
  const strides = broadcastStrides(array, shape);
  const batchStride =
    array.dtype === dtype && isReadable(strides) ? batchStrideOf(batch, strides) : undefined;
  if (batchStride !== undefined) return { storage: array.storage, strides, batchStride };
  const copy = lowering.scratchArray(shape, dtype);
  copyArray(lowering, array, copy);
  const copyStrides = contiguousStrides(shape);
  return {
    storage: copy.storage,
    strides: copyStrides,
    batchStride: batchStrideOf(batch, copyStrides) ?? 0,
  };
}
