/** Attention as a function. */

import { checkOptions } from "../../errors/index.js";
import { backendOf } from "../../kernels/index.js";
import {
  scaledDotProductAttention as attentionOp,
  attentionWithDropout,
  packedAttention as packedOp,
} from "../../ops/index.js";
import type { Tensor } from "../../tensor/index.js";

/** Options of `scaledDotProductAttention`. */
export interface AttentionOptions {
  /** Row i attends to columns 0 to i. */
  readonly isCausal?: boolean;
  /** The factor of q · kᵀ. Default: 1/√width. */
  readonly scale?: number;
  /** The dropout probability of attention weights. Default: 0. */
  readonly dropoutP?: number;
  /**
   * Grouped-query attention: key and value may have fewer heads than the query. Each of their heads serves the same
   * number of neighbouring heads of the query.
   */
  readonly enableGqa?: boolean;
  /**
   * Operands and result are [batch…, rows, heads, width], the layout of projections, instead of [batch…, heads, rows,
   * width].
   */
  readonly rowsFirst?: boolean;
}

/**
 * softmax(scale · q · kᵀ + mask) · v, on [batch…, rows, width]. A boolean mask is true where a column takes part; a
 * float mask is added to the scores.
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
  options: AttentionOptions = {},
): Tensor {
  const {
    dropoutP = 0,
    rowsFirst = false,
    ...attributes
  } = checkOptions("scaledDotProductAttention", options, {
    isCausal: true,
    scale: true,
    dropoutP: true,
    enableGqa: true,
    rowsFirst: true,
  });
  const { device } = query;
  const masks = mask ? [mask] : [];
  const keeps = keptValues(query, key, value, rowsFirst);
  if (dropoutP === 0)
    return device.apply(attentionOp, [query, key, value, ...masks], { ...attributes, rowsFirst, keeps });
  const operands = [query, key, value, device.randomState, ...masks];
  return device.apply(attentionWithDropout, operands, { ...attributes, rowsFirst, keeps, p: dropoutP });
}

/** What the device keeps for backward of attention with operands of these shapes. */
function keptValues(query: Tensor, key: Tensor, value: Tensor, rowsFirst: boolean) {
  const [rowAxis, headAxis] = rowsFirst ? [-3, -2] : [-2, -3];
  return keptBy(query, {
    heads: query.shape.at(headAxis) ?? 1,
    rows: query.shape.at(rowAxis) ?? 1,
    columns: key.shape.at(rowAxis) ?? 1,
    width: query.shape.at(-1) ?? 1,
    valueWidth: value.shape.at(-1) ?? 1,
  });
}

interface Sizes {
  readonly heads: number;
  readonly rows: number;
  readonly columns: number;
  readonly width: number;
  readonly valueWidth: number;
}

function keptBy({ device, dtype }: Tensor, sizes: Sizes): "probabilities" | "statistics" {
  const shape = { ...sizes, batch: 1, dtype: dtype === "f64" ? ("f64" as const) : ("f32" as const) };
  return backendOf(device.runtime).keepsProbabilities(shape) ? "probabilities" : "statistics";
}

/** Options of `packedAttention`. */
export interface PackedAttentionOptions extends Pick<AttentionOptions, "isCausal" | "scale"> {
  /** Broadcast to [batch…, heads, rows, rows]; as the mask of `scaledDotProductAttention`. */
  readonly mask?: Tensor | null;
}

/**
 * Attention of a query, key and value packed in one tensor, [batch…, rows, 3, heads, width], as one linear layer or
 * `fusedProjections` returns them. The result is [batch…, rows, heads, width]. The gradients are packed too, so the
 * layer before it needs one GEMM instead of three.
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
export function packedAttention(qkv: Tensor, options: PackedAttentionOptions = {}): Tensor {
  const { mask = null, ...attributes } = checkOptions("packedAttention", options, {
    mask: true,
    isCausal: true,
    scale: true,
  });
  const [rows = 1, , heads = 1, width = 1] = qkv.shape.slice(-4);
  const keeps = keptBy(qkv, { heads, rows, columns: rows, width, valueWidth: width });
  return qkv.device.apply(packedOp, mask ? [qkv, mask] : [qkv], { ...attributes, keeps });
}
