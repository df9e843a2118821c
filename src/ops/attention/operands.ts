/** Puts arrays into the words of the attention kernels: [batch, heads, rows, width] with strides, copied only where needed. */

import type { Dtype } from "../../ir/index.js";
import type { AttentionMask, AttentionOperand } from "../../kernels/index.js";
import { copyArray } from "../copy.js";
import { broadcastStrides, contiguousStrides, type DeviceArray } from "../device-array.js";
import { batchStrideOf } from "../matmul/gemm.js";
import type { Lowering } from "../op.js";
import type { Shape } from "../shape.js";

/** The sizes of one call. Queries are [batch…, rows, heads, width], keys and values alike with columns for rows. */
export interface AttentionSizes {
  readonly batch: Shape;
  readonly heads: number;
  readonly rows: number;
  readonly columns: number;
  readonly width: number;
  readonly valueWidth: number;
}

/** An array whose axes are [batch…, rows, heads, width]; the batch and the heads stretch to this shape. */
export function operandOf(
  lowering: Lowering,
  array: DeviceArray,
  shape: Shape,
  dtype: Dtype,
): AttentionOperand | undefined {
  const seen = asShape(
    lowering,
    array,
    shape,
    dtype,
    (strides) => shape.at(-1) === 1 || strides.at(-1) === 1,
  );
  const [rowStride = 0, headStride = 0] = seen.strides.slice(-3);
  return seen.storage && { storage: seen.storage, batchStride: seen.batchStride, headStride, rowStride };
}

/** A mask with the axes [batch…, heads, rows, columns], any of which it may stretch along. */
export function maskOf(
  lowering: Lowering,
  array: DeviceArray,
  { batch, heads, rows, columns }: AttentionSizes,
  dtype: Dtype,
): AttentionMask | undefined {
  const seen = asShape(lowering, array, [...batch, heads, rows, columns], dtype, () => true);
  const [headStride = 0, rowStride = 0, columnStride = 0] = seen.strides.slice(-3);
  return (
    seen.storage && {
      storage: seen.storage,
      batchStride: seen.batchStride,
      headStride,
      rowStride,
      columnStride,
    }
  );
}

/** An array stretched to a shape, with one step from batch to batch; a copy where its memory has no such. */
function asShape(
  lowering: Lowering,
  array: DeviceArray,
  shape: Shape,
  dtype: Dtype,
  fits: (strides: readonly number[]) => boolean,
) {
  const batch = shape.slice(0, -3);
  const strides = broadcastStrides(array, shape);
  const batchStride = array.dtype === dtype && fits(strides) ? batchStrideOf(batch, strides) : undefined;
  if (batchStride !== undefined) return { storage: array.storage, strides, batchStride };
  const copy = lowering.scratchArray(shape, dtype);
  copyArray(lowering, array, copy);
  const own = contiguousStrides(shape);
  return { storage: copy.storage, strides: own, batchStride: batchStrideOf(batch, own) ?? 0 };
}
