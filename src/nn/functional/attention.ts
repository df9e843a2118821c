/** Attention as a function. */

import {
  scaledDotProductAttention as attentionOp,
  attentionWithDropout,
  packedAttention as packedOp,
} from "../../ops/index.js";
import type { Tensor } from "../../tensor/index.js";

/** Options of `scaledDotProductAttention`. */
export interface AttentionOptions {
  /** Row i sees columns 0 to i. */
  readonly isCausal?: boolean;
  /** The factor of q · kᵀ; 1/√width unless given. */
  readonly scale?: number;
  /** The probability that a probability is dropped; 0 unless given. Above it attention is made of plain ops. */
  readonly dropoutP?: number;
  /**
   * Operands and result are [batch…, rows, heads, width], as projections make them and take them, instead of
   * [batch…, heads, rows, width].
   */
  readonly rowsFirst?: boolean;
}

/**
 * softmax(scale · q · kᵀ + mask) · v, on [batch…, rows, width]. A mask of truth values is true where a column takes part;
 * one of floats is added to the scores.
 *
 * @example
 * ```ts
 * import { device, nn, tensor, zeros } from "holdfast";
 * const cpu = await device("cpu");
 * const [q, v] = [zeros([2, 4]), tensor([[1], [3]])];
 * const y = nn.functional.scaledDotProductAttention(q, q, v, null, { isCausal: true });
 * console.log(y.tolist()); // → [ [ 1 ], [ 2 ] ]
 * cpu.close();
 * ```
 */
export function scaledDotProductAttention(
  query: Tensor,
  key: Tensor,
  value: Tensor,
  mask: Tensor | null = null,
  { dropoutP = 0, rowsFirst = false, ...attributes }: AttentionOptions = {},
): Tensor {
  const { device } = query;
  const masks = mask ? [mask] : [];
  if (dropoutP === 0) {
    return device.apply(attentionOp, [query, key, value, ...masks], { ...attributes, rowsFirst });
  }
  if (rowsFirst) {
    const [q, k, v] = [query, key, value].map((one) => one.transpose(-3, -2)) as [Tensor, Tensor, Tensor];
    return scaledDotProductAttention(q, k, v, mask, { dropoutP, ...attributes }).transpose(-3, -2);
  }
  const operands = [query, key, value, device.randomState, ...masks];
  return device.apply(attentionWithDropout, operands, { ...attributes, p: dropoutP });
}

/**
 * Attention of a query, key and value that lie in one tensor, [batch…, rows, 3, heads, width], as fusedProjections makes them; the
 * result is [batch…, rows, heads, width]. What they gain lies in one tensor too: a layer costs two products less than
 * with three tensors each way.
 *
 * @example
 * ```ts
 * import { cat, device, nn, tensor, zeros } from "holdfast";
 * const cpu = await device("cpu");
 * const qkv = cat([zeros([2, 2, 1, 1]), tensor([1, 3]).reshape([2, 1, 1, 1])], 1); // [rows, 3, heads, width]
 * console.log(nn.functional.packedAttention(qkv, { isCausal: true }).flatten().tolist()); // → [ 1, 2 ]
 * cpu.close();
 * ```
 */
export function packedAttention(
  qkv: Tensor,
  attributes: Pick<AttentionOptions, "isCausal" | "scale"> = {},
): Tensor {
  return qkv.device.apply(packedOp, [qkv], attributes);
}
