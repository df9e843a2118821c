/** Normalisations as functions. */

import {
  layerNorm as layerNormOp,
  normalize as normalizeOp,
  rmsNorm as rmsNormOp,
  type Shape,
} from "../../ops/index.js";
import type { Tensor } from "../../tensor/index.js";

/**
 * Normalizes each row to mean 0 and standard deviation 1, then applies the optional weight and bias. A row is the last
 * axes, of this shape.
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
 * Divides each row by its root mean square, then applies the optional weight. A row is the last axes, of this shape.
 * Default `eps`: the dtype's machine epsilon.
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
 * Scales vectors along an axis to length 1; a vector shorter than eps is divided by eps.
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
