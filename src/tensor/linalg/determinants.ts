/** Determinants of square matrices. */

import { linearAlgebra as ops } from "../../ops/index.js";
import type { Tensor } from "../tensor.js";
import { requireSquare } from "./checks.js";
import { found } from "./solvers.js";

/**
 * The determinants of square matrices. Its gradient exists for singular matrices too.
 *
 * @example
 * ```ts
 * import { device, linalg, tensor } from "holdfast";
 * const cpu = await device("cpu");
 * console.log(linalg.det(tensor([[2, 1], [1, 3]])).item()); // → 5
 * cpu.close();
 * ```
 */
export function det(a: Tensor): Tensor {
  requireSquare("linalg.det", a);
  return a.device.apply(ops.determinant, [a]);
}

/** The sign of a determinant, and the logarithm of its magnitude. */
export interface SignAndLogarithm {
  readonly sign: Tensor;
  readonly logabsdet: Tensor;
}

/**
 * The determinants as a sign and a logarithm, which neither overflow nor underflow: of a singular matrix 0 and −∞.
 *
 * @example
 * ```ts
 * import { device, eye, linalg } from "holdfast";
 * const cpu = await device("cpu");
 * const { sign, logabsdet } = linalg.slogdet(eye(3).mul(-1));
 * console.log(sign.item(), logabsdet.item()); // → -1 0
 * cpu.close();
 * ```
 */
export function slogdet(a: Tensor): SignAndLogarithm {
  requireSquare("linalg.slogdet", a);
  const [logarithm, sign] = a.device.applyAll(ops.logAbsDeterminant, [a]);
  return { sign: found(sign).detach(), logabsdet: found(logarithm) };
}

/**
 * The logarithms of the determinants: NaN if a determinant is negative, −∞ if it is 0.
 *
 * @example
 * ```ts
 * import { device, eye, linalg } from "holdfast";
 * const cpu = await device("cpu");
 * console.log(linalg.logdet(eye(4)).item()); // → 0
 * cpu.close();
 * ```
 */
export function logdet(a: Tensor): Tensor {
  requireSquare("linalg.logdet", a);
  const { sign, logabsdet } = slogdet(a);
  return logabsdet.where(sign.ge(0), Number.NaN);
}
