/** Normalisations as functions. */

import {
  layerNorm as layerNormOp,
  normalize as normalizeOp,
  rmsNorm as rmsNormOp,
  type Shape,
} from "../../ops/index.js";
import type { Tensor } from "../../tensor/index.js";

/**
 * Each row less its mean, over its standard deviation; then times the weight and plus the bias, where they are given. A row
 * is the last axes, of this shape.
 *
 * @example
 * ```ts
 * import { device, nn, tensor } from "holdfast";
 * const cpu = await device("cpu");
 * const y = nn.functional.layerNorm(tensor([[1, 3], [10, 30]]), [2], null, null, 0);
 * console.log(y.tolist()); // → [ [ -1, 1 ], [ -1, 1 ] ]
 * cpu.close();
 * ```
 */
export function layerNorm(
  x: Tensor,
  normalizedShape: Shape,
  weight: Tensor | null = null,
  bias: Tensor | null = null,
  eps = 1e-5,
): Tensor {
  const attributes = { normalizedShape, eps };
  if (weight) return x.device.apply(layerNormOp, bias ? [x, weight, bias] : [x, weight], attributes);
  const normalized = x.device.apply(layerNormOp, [x], attributes);
  return bias ? normalized.add(bias) : normalized;
}

/**
 * Each row over its root mean square, times the weight where it is given. A row is the last axes, of this shape. `eps` is
 * the dtype's own smallest step from 1 unless given.
 *
 * @example
 * ```ts
 * import { device, nn, tensor } from "holdfast";
 * const cpu = await device("cpu");
 * console.log(nn.functional.rmsNorm(tensor([[2, 2]]), [2], null, 0).tolist()); // → [ [ 1, 1 ] ]
 * cpu.close();
 * ```
 */
export function rmsNorm(
  x: Tensor,
  normalizedShape: Shape,
  weight: Tensor | null = null,
  eps?: number,
): Tensor {
  const attributes = eps === undefined ? { normalizedShape } : { normalizedShape, eps };
  return x.device.apply(rmsNormOp, weight ? [x, weight] : [x], attributes);
}

/**
 * Vectors along an axis brought to length 1; one shorter than eps is divided by eps.
 *
 * @example
 * ```ts
 * import { device, nn, tensor } from "holdfast";
 * const cpu = await device("cpu");
 * console.log(nn.functional.normalize(tensor([[0, 2], [0, 0]])).tolist()); // → [ [ 0, 1 ], [ 0, 0 ] ]
 * cpu.close();
 * ```
 */
export function normalize(x: Tensor, axis = 1, eps = 1e-12): Tensor {
  return x.device.apply(normalizeOp, [x], { axis, eps });
}
