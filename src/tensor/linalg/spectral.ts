/** Eigenvalues of symmetric matrices, and singular values. */

import { checkOptions } from "../../errors/index.js";
import { linearAlgebra as ops } from "../../ops/index.js";
import { cat } from "../functions.js";
import type { Tensor } from "../tensor.js";
import { requireDecomposable, requireSquare } from "./checks.js";

/** The result of `eigh`: values in ascending order, and a column for each vector. */
export interface Eigen {
  readonly eigenvalues: Tensor;
  readonly eigenvectors: Tensor;
}

/**
 * A = V · diag(w) · Vᵀ for symmetric A. Of another matrix the symmetric part (A + Aᵀ) / 2 counts. In each vector, the element of the largest magnitude is
 * positive. The gradient of the vectors is that of different eigenvalues.
 *
 * @example
 * ```ts
 * import { device, linalg, tensor } from "holdfast";
 * const cpu = await device("cpu");
 * const { eigenvalues } = linalg.eigh(tensor([[2, 0], [0, 1]]));
 * console.log(eigenvalues.tolist()); // → [ 1, 2 ]
 * cpu.close();
 * ```
 */
export function eigh(a: Tensor): Eigen {
  requireSquare("linalg.eigh", a);
  const packed = a.device.apply(ops.eighFactor, [a]);
  return { eigenvalues: packed.select(-2, 0), eigenvectors: packed.narrow(-2, 1, a.size(-1)) };
}

/**
 * The eigenvalues of symmetric matrices, in ascending order. Their gradient exists for equal eigenvalues too.
 *
 * @example
 * ```ts
 * import { device, linalg, tensor } from "holdfast";
 * const cpu = await device("cpu");
 * console.log(linalg.eigvalsh(tensor([[0, 2], [2, 3]])).tolist()); // → [ -1, 4 ]
 * cpu.close();
 * ```
 */
export function eigvalsh(a: Tensor): Tensor {
  requireSquare("linalg.eigvalsh", a);
  return a.device.apply(ops.eighValues, [a]);
}

/** The result of `svd`: the singular values in descending order, and the vectors of both sides, in columns and in rows. */
export interface SingularValues {
  readonly U: Tensor;
  readonly S: Tensor;
  readonly Vh: Tensor;
}

/** `fullMatrices`: U and Vh are square. Default: true, as in PyTorch. */
export interface SvdOptions {
  readonly fullMatrices?: boolean;
}

/**
 * A = U · diag(S) · Vh. In each column of U, the element of the largest magnitude is positive. The gradient of the vectors is that of different singular
 * values; vectors that only complete a square matrix have none.
 *
 * @example
 * ```ts
 * import { device, linalg, tensor } from "holdfast";
 * const cpu = await device("cpu");
 * const { U, S, Vh } = linalg.svd(tensor([[3, 0], [0, -2], [0, 0]]), { fullMatrices: false });
 * console.log(S.tolist(), Vh.tolist(), U.shape); // → [ 3, 2 ] [ [ 1, 0 ], [ 0, -1 ] ] [ 3, 2 ]
 * cpu.close();
 * ```
 */
export function svd(a: Tensor, options: SvdOptions = {}): SingularValues {
  const { fullMatrices = true } = checkOptions("linalg.svd", options, { fullMatrices: true });
  requireDecomposable("linalg.svd", a);
  const [m, n] = [a.size(-2), a.size(-1)];
  const packed = a.device.apply(ops.svdFactor, [a]);
  const [U, S, V] = [packed.narrow(-2, 0, m), packed.select(-2, m), packed.narrow(-2, m + 1, n)];
  const whole = (vectors: Tensor): Tensor => (fullMatrices ? completed(vectors) : vectors);
  return { U: whole(U), S, Vh: whole(V).transpose(-2, -1) };
}

function completed(vectors: Tensor): Tensor {
  if (vectors.size(-2) === vectors.size(-1)) return vectors;
  const further = vectors.device.apply(ops.orthonormalComplement, [vectors.detach()]);
  return cat([vectors, further], -1);
}

/**
 * The singular values, in descending order. Their gradient exists for equal values too.
 *
 * @example
 * ```ts
 * import { device, linalg, tensor } from "holdfast";
 * const cpu = await device("cpu");
 * console.log(linalg.svdvals(tensor([[0, 2], [-3, 0]])).tolist()); // → [ 3, 2 ]
 * cpu.close();
 * ```
 */
export function svdvals(a: Tensor): Tensor {
  requireDecomposable("linalg.svdvals", a);
  return a.device.apply(ops.svdValues, [a]);
}
