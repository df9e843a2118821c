/** The Cholesky decomposition A = L · Lᵀ. */

import { at, dotOf, type Matrix } from "./matrix.js";

/** Reads the symmetric part of A [n, n]. `info`: 0, or the order of the first leading minor that is not positive. */
export function factorCholesky(a: Matrix, n: number): { readonly factor: Matrix; readonly info: number } {
  const factor = new Float64Array(n * n);
  for (let i = 0; i < n; i++) {
    for (let j = 0; j <= i; j++) {
      const sum = (at(a, i * n + j) + at(a, j * n + i)) / 2 - dotOf(factor, factor, j, i * n, j * n);
      if (i > j) factor[i * n + j] = sum / at(factor, j * n + j);
      else if (sum > 0) factor[i * n + i] = Math.sqrt(sum);
      else return { factor, info: i + 1 };
    }
  }
  return { factor, info: 0 };
}
