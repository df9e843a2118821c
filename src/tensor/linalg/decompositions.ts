/** Decompositions into triangles and orthonormal bases. */

import { checkOptions, HoldfastError, type OptionNames } from "../../errors/index.js";
import { formatShape, linearAlgebra as ops } from "../../ops/index.js";
import { eye } from "../creation.js";
import { cat } from "../functions.js";
import type { Tensor } from "../tensor.js";
import { broadcastBatches, requireDecomposable, requireRegular, requireSquare } from "./checks.js";
import { found, solveTriangular } from "./solvers.js";

/** `upper`: U of A = Uᵀ · U instead of L. Default: false. */
export interface CholeskyOptions {
  readonly upper?: boolean;
}

const choleskyOptionNames: OptionNames<CholeskyOptions> = { upper: true };

/**
 * The lower triangle L of A = L · Lᵀ, for symmetric positive definite A. Of another matrix the symmetric part (A + Aᵀ) / 2 counts. If it is not
 * positive definite, that is an error; in a compiled step L is then NaN.
 *
 * @example
 * ```ts
 * import { device, linalg, tensor } from "holdfast";
 * const cpu = await device("cpu");
 * console.log(linalg.cholesky(tensor([[4, 2], [2, 10]])).tolist()); // → [ [ 2, 0 ], [ 1, 3 ] ]
 * cpu.close();
 * ```
 */
export function cholesky(a: Tensor, options: CholeskyOptions = {}): Tensor {
  const { upper = false } = checkOptions("linalg.cholesky", options, choleskyOptionNames);
  requireSquare("linalg.cholesky", a);
  const [factor, info] = a.device.applyAll(ops.choleskyFactor, [a]);
  requireRegular(
    "linalg.cholesky",
    found(info),
    (order) =>
      `is not positive definite: its leading minor of order ${order} is not positive. Add a multiple of the identity.`,
  );
  return upper ? found(factor).transpose(-2, -1) : found(factor);
}

/**
 * Solves A · X = B, for the triangle of A = L · Lᵀ that `cholesky` gave.
 *
 * @example
 * ```ts
 * import { device, linalg, tensor } from "holdfast";
 * const cpu = await device("cpu");
 * const l = linalg.cholesky(tensor([[4, 2], [2, 10]]));
 * console.log(linalg.choleskySolve(tensor([[6], [12]]), l).tolist()); // → [ [ 1 ], [ 1 ] ]
 * cpu.close();
 * ```
 */
export function choleskySolve(b: Tensor, l: Tensor, options: CholeskyOptions = {}): Tensor {
  const { upper = false } = checkOptions("linalg.choleskySolve", options, choleskyOptionNames);
  const lower = upper ? l.transpose(-2, -1) : l;
  const half = solveTriangular(lower, b, { upper: false });
  return solveTriangular(lower.transpose(-2, -1), half, { upper: true });
}

/**
 * The inverse of A, for the triangle of A = L · Lᵀ that `cholesky` gave.
 *
 * @example
 * ```ts
 * import { device, linalg, tensor } from "holdfast";
 * const cpu = await device("cpu");
 * console.log(linalg.choleskyInverse(tensor([[2, 0], [0, 4]])).tolist()); // → [ [ 0.25, 0 ], [ 0, 0.0625 ] ]
 * cpu.close();
 * ```
 */
export function choleskyInverse(l: Tensor, options: CholeskyOptions = {}): Tensor {
  checkOptions("linalg.choleskyInverse", options, choleskyOptionNames);
  requireSquare("linalg.choleskyInverse", l);
  const { device, dtype } = l;
  return choleskySolve(eye(l.size(-1), l.size(-1), { device, dtype }), l, options);
}

/** The result of `luFactor`: L below the diagonal of `LU`, U above it and on it; the row exchanges, counted from 1. */
export interface LuFactors {
  readonly LU: Tensor;
  readonly pivots: Tensor;
}

/**
 * The LU decomposition in the form that `luSolve` takes. A zero pivot is an error, except in a compiled step.
 *
 * @example
 * ```ts
 * import { device, linalg, tensor } from "holdfast";
 * const cpu = await device("cpu");
 * const { LU, pivots } = linalg.luFactor(tensor([[1, 2], [2, 0]]));
 * console.log(LU.tolist(), pivots.tolist()); // → [ [ 2, 0 ], [ 0.5, 2 ] ] [ 2, 2 ]
 * cpu.close();
 * ```
 */
export function luFactor(a: Tensor): LuFactors {
  const { LU, pivots, info } = factorLu("linalg.luFactor", a);
  requireRegular(
    "linalg.luFactor",
    info,
    (pivot) => `is singular: pivot ${pivot} is 0. linalg.lu takes such matrices.`,
  );
  return { LU, pivots };
}

interface CheckedFactors extends LuFactors {
  readonly info: Tensor;
}

/** The op has the gradient of square matrices. Further rows of L and columns of U follow from their square parts. */
function factorLu(op: string, a: Tensor): CheckedFactors {
  requireDecomposable(op, a);
  const [m, n] = [a.size(-2), a.size(-1)];
  if (m === n || !a.requiresGrad) return luOf(a);
  if (m < n) {
    const { LU, pivots, info } = luOf(a.narrow(-1, 0, m));
    const rest = permutationOf(pivots, m, a)
      .transpose(-2, -1)
      .matmul(a.narrow(-1, m, n - m));
    const further = solveTriangular(LU, rest, { upper: false, unitriangular: true });
    return { LU: cat([LU, further], -1), pivots, info };
  }
  const { pivots, info } = luOf(a.detach());
  const ordered = permutationOf(pivots, m, a).transpose(-2, -1).matmul(a);
  const { LU } = luOf(ordered.narrow(-2, 0, n));
  const further = solveTriangular(LU, ordered.narrow(-2, n, m - n), { upper: true, left: false });
  return { LU: cat([LU, further], -2), pivots, info };
}

function luOf(a: Tensor): CheckedFactors {
  const [lu, pivots, info] = a.device.applyAll(ops.luFactor, [a]);
  return { LU: found(lu), pivots: found(pivots).detach(), info: found(info).detach() };
}

function permutationOf(pivots: Tensor, rows: number, { dtype }: Tensor): Tensor {
  return pivots.device.apply(ops.luPermutation, [pivots], { rows, dtype });
}

/** The result of `lu`. */
export interface LuDecomposition {
  readonly P: Tensor;
  readonly L: Tensor;
  readonly U: Tensor;
}

/**
 * A = P · L · U: a permutation, a lower triangle with ones on its diagonal, and an upper triangle.
 *
 * @example
 * ```ts
 * import { device, linalg, tensor } from "holdfast";
 * const cpu = await device("cpu");
 * const { P, L, U } = linalg.lu(tensor([[1, 2], [2, 0]]));
 * console.log(P.matmul(L).matmul(U).tolist(), L.tolist()); // → [ [ 1, 2 ], [ 2, 0 ] ] [ [ 1, 0 ], [ 0.5, 1 ] ]
 * cpu.close();
 * ```
 */
export function lu(a: Tensor): LuDecomposition {
  const { LU, pivots } = factorLu("linalg.lu", a);
  const [m, n] = [a.size(-2), a.size(-1)];
  const k = Math.min(m, n);
  const { device, dtype } = a;
  const below = device.apply(ops.triangularPart, [LU.narrow(-1, 0, k)], { isUpper: false, offset: -1 });
  return {
    P: permutationOf(pivots, m, a),
    L: below.add(eye(m, k, { device, dtype })),
    U: device.apply(ops.triangularPart, [LU.narrow(-2, 0, k)], { isUpper: true }),
  };
}

/**
 * Solves A · X = B, for the decomposition of A that `luFactor` gave.
 *
 * @example
 * ```ts
 * import { device, linalg, tensor } from "holdfast";
 * const cpu = await device("cpu");
 * const { LU, pivots } = linalg.luFactor(tensor([[1, 2], [2, 0]]));
 * console.log(linalg.luSolve(LU, pivots, tensor([[5], [2]])).tolist()); // → [ [ 1 ], [ 2 ] ]
 * cpu.close();
 * ```
 */
export function luSolve(LU: Tensor, pivots: Tensor, b: Tensor): Tensor {
  const p = permutationOf(pivots, LU.size(-1), LU);
  const [transposed, right] = broadcastBatches("linalg.luSolve", p.transpose(-2, -1), b);
  const half = solveTriangular(LU, transposed.matmul(right), { upper: false, unitriangular: true });
  return solveTriangular(LU, half, { upper: true });
}

/** The result of `qr`. In mode "r", Q has no elements. */
export interface QrDecomposition {
  readonly Q: Tensor;
  readonly R: Tensor;
}

/** Default: "reduced". "complete": Q is square. "r": R alone. */
export interface QrOptions {
  readonly mode?: "reduced" | "complete" | "r";
}

/**
 * A = Q · R: orthonormal columns and an upper triangle. The diagonal of R can be negative. The gradient is that of a matrix with independent
 * columns; mode "complete" has none for more rows than columns.
 *
 * @example
 * ```ts
 * import { device, linalg, tensor } from "holdfast";
 * const cpu = await device("cpu");
 * const { Q, R } = linalg.qr(tensor([[3, 5], [0, 2], [4, 0]], { dtype: "f64" }));
 * console.log(Q.shape, String(R)); // → [ 3, 2 ] tensor([[-5.         -3.        ]
 * // →         [ 0.         -4.47213595]], shape [2, 2], f64, cpu)
 * cpu.close();
 * ```
 */
export function qr(a: Tensor, options: QrOptions = {}): QrDecomposition {
  const { mode = "reduced" } = checkOptions("linalg.qr", options, { mode: true });
  requireDecomposable("linalg.qr", a);
  const [m, n] = [a.size(-2), a.size(-1)];
  if (m < n) {
    const { Q, R } = qr(a.narrow(-1, 0, m), { mode: "reduced" });
    const further = Q.transpose(-2, -1).matmul(a.narrow(-1, m, n - m));
    return { Q: mode === "r" ? withoutElements(Q) : Q, R: cat([R, further], -1) };
  }
  const packed = a.device.apply(ops.qrFactor, [a]);
  const [Q, R] = [packed.narrow(-1, 0, m).transpose(-2, -1), packed.narrow(-1, m, n)];
  if (mode === "r") return { Q: withoutElements(Q), R };
  if (mode === "reduced" || m === n) return { Q, R };
  if (a.requiresGrad) {
    throw new HoldfastError(
      "NO_GRADIENT",
      `linalg.qr of ${formatShape(a.shape)}: mode "complete" has no gradient for more rows than columns. Use mode "reduced", or detach().`,
      { numbers: { op: "linalg.qr" } },
    );
  }
  const further = a.device.apply(ops.orthonormalComplement, [Q]);
  const zeros = R.narrow(-2, 0, 1)
    .mul(0)
    .expand([...R.shape.slice(0, -2), m - n, n]);
  return { Q: cat([Q, further], -1), R: cat([R, zeros], -2) };
}

function withoutElements(q: Tensor): Tensor {
  return q.flatten().narrow(0, 0, 0);
}
