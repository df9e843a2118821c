/** LU decomposition with partial pivoting, and what follows from it: solutions, inverses and determinants. */

import { at, identity, type Matrix } from "./matrix.js";

export interface Lu {
  /** U on and above the diagonal, L below it; L has ones on its diagonal. [m, n] */
  readonly lu: Matrix;
  /** The row that was exchanged with each row in turn. [min(m, n)] */
  readonly pivots: Int32Array;
  /** 0, or the number of the first pivot that is 0, counted from 1. */
  readonly info: number;
  /** The sign of the permutation. */
  readonly sign: number;
}

/** Overwrites `a` [m, n]. */
export function factorLu(a: Matrix, m: number, n: number): Lu {
  const steps = Math.min(m, n);
  const pivots = new Int32Array(steps);
  let info = 0;
  let sign = 1;
  for (let k = 0; k < steps; k++) {
    let pivot = k;
    for (let i = k + 1; i < m; i++)
      if (Math.abs(at(a, i * n + k)) > Math.abs(at(a, pivot * n + k))) pivot = i;
    pivots[k] = pivot;
    const diagonal = at(a, pivot * n + k);
    if (diagonal === 0) {
      if (info === 0) info = k + 1;
      continue;
    }
    if (pivot !== k) {
      swapRows(a, n, k, pivot);
      sign = -sign;
    }
    for (let i = k + 1; i < m; i++) {
      const factor = at(a, i * n + k) / diagonal;
      a[i * n + k] = factor;
      for (let j = k + 1; j < n; j++) a[i * n + j] = at(a, i * n + j) - factor * at(a, k * n + j);
    }
  }
  return { lu: a, pivots, info, sign };
}

/** Solves A · X = B for B [n, k], in place. */
export function solveLu({ lu, pivots }: Pick<Lu, "lu" | "pivots">, b: Matrix, n: number, k: number): void {
  for (let row = 0; row < n; row++) {
    const pivot = pivots[row] as number;
    if (pivot !== row) swapRows(b, k, row, pivot);
  }
  solveTriangle(lu, b, n, k, { isUpper: false, isTransposed: false, isUnit: true });
  solveTriangle(lu, b, n, k, { isUpper: true, isTransposed: false, isUnit: false });
}

/** The inverse of A [n, n], and `info` as in `Lu`. Overwrites `a`. */
export function invert(a: Matrix, n: number): { readonly inverse: Matrix; readonly info: number } {
  const lu = factorLu(a, n, n);
  const inverse = identity(n);
  solveLu(lu, inverse, n, n);
  return { inverse, info: lu.info };
}

/** The determinant as a sign and the logarithm of its magnitude. Overwrites `a`. */
export function logDeterminant(a: Matrix, n: number): { readonly sign: number; readonly logarithm: number } {
  const lu = factorLu(a, n, n);
  let { sign } = lu;
  let logarithm = 0;
  for (let i = 0; i < n; i++) {
    const diagonal = at(a, i * n + i);
    sign *= Math.sign(diagonal);
    logarithm += Math.log(Math.abs(diagonal));
  }
  return { sign, logarithm };
}

/** Overwrites `a`. */
export function determinant(a: Matrix, n: number): number {
  let product = factorLu(a, n, n).sign;
  for (let i = 0; i < n; i++) product *= at(a, i * n + i);
  return product;
}

/** The matrix P of A = P · L · U, [rows, rows]. */
export function permutationMatrix(pivots: ArrayLike<number>, rows: number): Matrix {
  const order = Array.from({ length: rows }, (_, row) => row);
  for (let row = 0; row < pivots.length; row++) {
    const pivot = pivots[row] as number;
    [order[row], order[pivot]] = [order[pivot] as number, order[row] as number];
  }
  const matrix = new Float64Array(rows * rows);
  for (const [column, row] of order.entries()) matrix[row * rows + column] = 1;
  return matrix;
}

export interface Triangle {
  readonly isUpper: boolean;
  /** Solve with the transpose of the stored triangle. */
  readonly isTransposed: boolean;
  /** Take the diagonal as ones. */
  readonly isUnit: boolean;
}

/** Solves T · X = B for a triangle T [n, n] and B [n, k], in place. */
export function solveTriangle(
  t: Matrix,
  b: Matrix,
  n: number,
  k: number,
  { isUpper, isTransposed, isUnit }: Triangle,
): void {
  const isBackward = isUpper !== isTransposed;
  for (let step = 0; step < n; step++) {
    const i = isBackward ? n - 1 - step : step;
    for (let done = 0; done < step; done++) {
      const j = isBackward ? n - 1 - done : done;
      const factor = isTransposed ? at(t, j * n + i) : at(t, i * n + j);
      if (factor === 0) continue;
      for (let c = 0; c < k; c++) b[i * k + c] = at(b, i * k + c) - factor * at(b, j * k + c);
    }
    if (isUnit) continue;
    const diagonal = at(t, i * n + i);
    for (let c = 0; c < k; c++) b[i * k + c] = at(b, i * k + c) / diagonal;
  }
}

function swapRows(a: Matrix, n: number, x: number, y: number): void {
  for (let j = 0; j < n; j++) {
    const value = at(a, x * n + j);
    a[x * n + j] = at(a, y * n + j);
    a[y * n + j] = value;
  }
}
