/** Systems of linear equations, inverses and least squares. */

import { checkOptions, HoldfastError, type OptionNames } from "../../errors/index.js";
import { formatShape, isSameShape, linearAlgebra as ops } from "../../ops/index.js";
import type { Tensor } from "../tensor.js";
import {
  broadcastBatches,
  defaultTolerance,
  isSingular,
  requireDecomposable,
  requireRegular,
  requireSquare,
} from "./checks.js";
import { svdvals } from "./spectral.js";

/** `left`: false solves X · A = B. Default: true. */
export interface SolveOptions {
  readonly left?: boolean;
}

/**
 * Solves A · X = B for square matrices A [..., n, n]. B is a matrix [..., n, k] or a vector [..., n]; batches broadcast. A singular matrix is an
 * error; in a compiled step its solution is NaN.
 *
 * @example
 * ```ts
 * import { device, linalg, tensor } from "holdfast";
 * const cpu = await device("cpu");
 * const a = tensor([[2, 1], [1, 3]]);
 * console.log(linalg.solve(a, tensor([5, 10])).tolist()); // → [ 1, 3 ]
 * cpu.close();
 * ```
 */
export function solve(a: Tensor, b: Tensor, options: SolveOptions = {}): Tensor {
  const { left = true } = checkOptions("linalg.solve", options, { left: true });
  if (!left) return solve(a.transpose(-2, -1), b.transpose(-2, -1)).transpose(-2, -1);
  if (isVector(a, b)) return solve(a, b.unsqueeze(-1)).squeeze(-1);
  requireSquare("linalg.solve", a);
  requireDecomposable("linalg.solve", b);
  const operands = broadcastBatches("linalg.solve", a, b);
  const [x, info] = a.device.applyAll(ops.solve, operands);
  requireRegular("linalg.solve", found(info), isSingular);
  return found(x);
}

/** As in PyTorch: one vector, or a batch of vectors with the leading axes of A. */
function isVector(a: Tensor, b: Tensor): boolean {
  return b.ndim === 1 || (a.ndim - 1 === b.ndim && isSameShape(b.shape, a.shape.slice(0, -1)));
}

/** An output that the op has. */
export function found<T>(output: T | undefined): T {
  if (output !== undefined) return output;
  throw new HoldfastError("BAD_ARGUMENT", "The op has fewer outputs than its caller expects.");
}

/** `upper`: which triangle of A is read. `unitriangular`: its diagonal counts as ones. */
export interface SolveTriangularOptions extends SolveOptions {
  readonly upper: boolean;
  readonly unitriangular?: boolean;
}

/**
 * Solves A · X = B for triangles A. The other elements of A are not read. A zero on the diagonal gives infinities and NaN, as in PyTorch.
 *
 * @example
 * ```ts
 * import { device, linalg, tensor } from "holdfast";
 * const cpu = await device("cpu");
 * const a = tensor([[2, 0], [1, 4]]);
 * console.log(linalg.solveTriangular(a, tensor([[2], [9]]), { upper: false }).tolist()); // → [ [ 1 ], [ 2 ] ]
 * cpu.close();
 * ```
 */
export function solveTriangular(a: Tensor, b: Tensor, options: SolveTriangularOptions): Tensor {
  const {
    upper,
    left = true,
    unitriangular = false,
  } = checkOptions("linalg.solveTriangular", options, { upper: true, unitriangular: true, left: true });
  const right = left ? b : b.transpose(-2, -1);
  requireSquare("linalg.solveTriangular", a);
  requireDecomposable("linalg.solveTriangular", right);
  const operands = broadcastBatches("linalg.solveTriangular", a, right);
  const attributes = { isUpper: upper, isTransposed: !left, isUnit: unitriangular };
  const x = a.device.apply(ops.triangularSolve, operands, attributes);
  return left ? x : x.transpose(-2, -1);
}

/**
 * The inverse of square matrices. A singular one is an error; in a compiled step its inverse is NaN. `solve` is faster and more precise than a
 * product with the inverse.
 *
 * @example
 * ```ts
 * import { device, linalg, tensor } from "holdfast";
 * const cpu = await device("cpu");
 * console.log(linalg.inv(tensor([[2, 0], [0, 4]])).tolist()); // → [ [ 0.5, 0 ], [ 0, 0.25 ] ]
 * cpu.close();
 * ```
 */
export function inv(a: Tensor): Tensor {
  requireSquare("linalg.inv", a);
  const [x, info] = a.device.applyAll(ops.inverse, [a]);
  requireRegular("linalg.inv", found(info), isSingular);
  return found(x);
}

/** `rtol`: relative to the largest singular value. `atol`: absolute. Singular values up to the larger of both count as 0. */
export interface RankOptions {
  readonly rtol?: number;
  readonly atol?: number;
}

const rankOptionNames: OptionNames<RankOptions> = { rtol: true, atol: true };

/**
 * The Moore-Penrose inverse. Default of `rtol`: the dtype's epsilon times the larger side; 0 if `atol` is given.
 *
 * @example
 * ```ts
 * import { device, linalg, tensor } from "holdfast";
 * const cpu = await device("cpu");
 * console.log(linalg.pinv(tensor([[2, 0], [0, 0], [0, 4]])).tolist()); // → [ [ 0.5, 0, 0 ], [ 0, 0, 0.25 ] ]
 * cpu.close();
 * ```
 */
export function pinv(a: Tensor, options: RankOptions = {}): Tensor {
  const { rtol, atol } = checkOptions("linalg.pinv", options, rankOptionNames);
  requireDecomposable("linalg.pinv", a);
  const relative = rtol ?? (atol === undefined ? defaultTolerance(a) : 0);
  return a.device.apply(ops.pseudoInverse, [a], { relative, absolute: atol ?? 0 });
}

/**
 * The number of singular values that do not count as 0, with the tolerances of `pinv`.
 *
 * @example
 * ```ts
 * import { device, linalg, tensor } from "holdfast";
 * const cpu = await device("cpu");
 * console.log(linalg.matrixRank(tensor([[1, 2], [2, 4]])).item()); // → 1
 * cpu.close();
 * ```
 */
export function matrixRank(a: Tensor, options: RankOptions = {}): Tensor {
  const { rtol, atol } = checkOptions("linalg.matrixRank", options, rankOptionNames);
  requireDecomposable("linalg.matrixRank", a);
  const values = svdvals(a.detach());
  if (values.size(-1) === 0) return values.sum(-1).to("i32");
  const relative = rtol ?? (atol === undefined ? defaultTolerance(a) : 0);
  const cutoff = values
    .amax(-1, { keepdim: true })
    .mul(relative)
    .maximum(atol ?? 0);
  return values.gt(cutoff).sum(-1);
}

/** The result of `lstsq`. */
export interface LeastSquares {
  readonly solution: Tensor;
  /** The sums of squares of A · X − B, for more rows than columns; otherwise without elements. */
  readonly residuals: Tensor;
  readonly rank: Tensor;
  readonly singularValues: Tensor;
}

/**
 * The X with the least squares of A · X − B, and of those the one with the least norm. Singular values up to `rcond` times the largest one count as
 * 0. Default: the dtype's epsilon times the larger side.
 *
 * @example
 * ```ts
 * import { device, linalg, tensor } from "holdfast";
 * const cpu = await device("cpu");
 * const a = tensor([[1, 0], [1, 1], [1, 2]], { dtype: "f64" });
 * const { solution, rank } = linalg.lstsq(a, tensor([[1], [3], [5]], { dtype: "f64" }));
 * console.log(String(solution.flatten()), rank.item()); // → tensor([1. 2.], shape [2], f64, cpu) 2
 * cpu.close();
 * ```
 */
export function lstsq(a: Tensor, b: Tensor, options: { readonly rcond?: number } = {}): LeastSquares {
  const { rcond } = checkOptions("linalg.lstsq", options, { rcond: true });
  if (isVector(a, b)) {
    const { solution, residuals, ...rest } = lstsq(a, b.unsqueeze(-1), rcond === undefined ? {} : { rcond });
    return {
      ...rest,
      solution: solution.squeeze(-1),
      residuals: residuals.ndim > 0 ? residuals.squeeze(-1) : residuals,
    };
  }
  requireDecomposable("linalg.lstsq", a);
  requireDecomposable("linalg.lstsq", b);
  if (a.size(-2) !== b.size(-2)) {
    throw new HoldfastError(
      "BAD_SHAPE",
      `linalg.lstsq of ${formatShape(a.shape)} and ${formatShape(b.shape)}: both must have as many rows.`,
      { numbers: { op: "linalg.lstsq" } },
    );
  }
  const tolerance = { rtol: rcond ?? defaultTolerance(a) };
  const solution = pinv(a, tolerance).matmul(b);
  const isTall = a.size(-2) > a.size(-1);
  const residuals = a.matmul(solution).sub(b).square().sum(-2);
  return {
    solution,
    residuals: isTall ? residuals : residuals.flatten().narrow(0, 0, 0),
    rank: matrixRank(a, tolerance),
    singularValues: svdvals(a.detach()),
  };
}

/**
 * The inverse of a tensor as a linear map: its first `ind` axes have as many elements as the rest. `tensordot` with it over these axes undoes a
 * `tensordot` with the tensor.
 *
 * @example
 * ```ts
 * import { device, eye, linalg } from "holdfast";
 * const cpu = await device("cpu");
 * console.log(linalg.tensorinv(eye(6).reshape([6, 2, 3]), { ind: 1 }).shape); // → [ 2, 3, 6 ]
 * cpu.close();
 * ```
 */
export function tensorinv(a: Tensor, options: { readonly ind?: number } = {}): Tensor {
  const { ind = 2 } = checkOptions("linalg.tensorinv", options, { ind: true });
  const [first, rest] = [a.shape.slice(0, ind), a.shape.slice(ind)];
  const [rows, columns] = [sizeOf(first), sizeOf(rest)];
  if (rows !== columns || ind < 1) {
    throw new HoldfastError(
      "BAD_SHAPE",
      `linalg.tensorinv of ${formatShape(a.shape)}: the first ${ind} axes have ${rows} elements and the rest ${columns}; both must be equal.`,
      { numbers: { op: "linalg.tensorinv" } },
    );
  }
  return inv(a.reshape([rows, columns])).reshape([...rest, ...first]);
}

/**
 * Solves tensordot(A, X) = B, for an A whose first axes are those of B. `axes` of A are moved to its end first.
 *
 * @example
 * ```ts
 * import { device, eye, linalg, ones } from "holdfast";
 * const cpu = await device("cpu");
 * const a = eye(6).mul(2).reshape([2, 3, 6]);
 * console.log(linalg.tensorsolve(a, ones([2, 3])).tolist()); // → [ 0.5, 0.5, 0.5, 0.5, 0.5, 0.5 ]
 * cpu.close();
 * ```
 */
export function tensorsolve(
  a: Tensor,
  b: Tensor,
  options: { readonly axes?: readonly number[] } = {},
): Tensor {
  const { axes } = checkOptions("linalg.tensorsolve", options, { axes: true });
  const moved = axes
    ? a.movedim(
        axes,
        axes.map((_, index) => index - axes.length),
      )
    : a;
  const [first, rest] = [moved.shape.slice(0, b.ndim), moved.shape.slice(b.ndim)];
  if (!isSameShape(first, b.shape) || sizeOf(rest) !== b.numel) {
    throw new HoldfastError(
      "BAD_SHAPE",
      `linalg.tensorsolve of ${formatShape(moved.shape)} and ${formatShape(b.shape)}: A must begin with the axes of B, and the rest must have ` +
        `${b.numel} elements.`,
      { numbers: { op: "linalg.tensorsolve" } },
    );
  }
  return solve(moved.reshape([b.numel, b.numel]), b.flatten()).reshape(rest);
}

function sizeOf(shape: readonly number[]): number {
  return shape.reduce((product, size) => product * size, 1);
}
