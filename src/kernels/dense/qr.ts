/** QR decomposition by Householder reflections, with LAPACK's signs. */

import { at, type Matrix } from "./matrix.js";

export interface Qr {
  /** [m, columns] */
  readonly q: Matrix;
  /** [min(m, n), n] */
  readonly r: Matrix;
}

/** A [m, n] = Q · R. Q has as many columns as asked for: min(m, n), or m for a whole basis. Overwrites `a`. */
export function factorQr(a: Matrix, m: number, n: number, columns = Math.min(m, n)): Qr {
  const steps = Math.min(m, n);
  const scales = new Float64Array(steps);
  for (let k = 0; k < steps; k++) scales[k] = reflectColumn(a, m, n, k);
  const r = new Float64Array(steps * n);
  for (let i = 0; i < steps; i++) for (let j = i; j < n; j++) r[i * n + j] = at(a, i * n + j);
  const q = new Float64Array(m * columns);
  for (let i = 0; i < columns; i++) q[i * columns + i] = 1;
  for (let k = steps - 1; k >= 0; k--) applyReflector(a, n, k, at(scales, k), q, m, columns, 0);
  return { q, r };
}

/**
 * Makes column k zero below the diagonal, by the reflection I − scale·v·vᵀ. v is 1 at k and stays in the column below. The scale is 0 if
 * nothing is below: the sign of the diagonal then stays.
 */
function reflectColumn(a: Matrix, m: number, n: number, k: number): number {
  let largest = 0;
  for (let i = k + 1; i < m; i++) largest = Math.max(largest, Math.abs(at(a, i * n + k)));
  if (largest === 0) return 0;
  const alpha = at(a, k * n + k);
  largest = Math.max(largest, Math.abs(alpha));
  let sum = 0;
  for (let i = k; i < m; i++) sum += (at(a, i * n + k) / largest) ** 2;
  const norm = largest * Math.sqrt(sum);
  const beta = alpha < 0 ? norm : -norm;
  for (let i = k + 1; i < m; i++) a[i * n + k] = at(a, i * n + k) / (alpha - beta);
  const scale = (beta - alpha) / beta;
  a[k * n + k] = beta;
  applyReflector(a, n, k, scale, a, m, n, k + 1);
  return scale;
}

/** Applies the reflector of column k of `a` to the columns of `target` [m, n] from `first` on. */
function applyReflector(
  a: Matrix,
  stride: number,
  k: number,
  scale: number,
  target: Matrix,
  m: number,
  n: number,
  first: number,
): void {
  if (scale === 0) return;
  for (let j = first; j < n; j++) {
    let sum = at(target, k * n + j);
    for (let i = k + 1; i < m; i++) sum += at(a, i * stride + k) * at(target, i * n + j);
    sum *= scale;
    target[k * n + j] = at(target, k * n + j) - sum;
    for (let i = k + 1; i < m; i++) target[i * n + j] = at(target, i * n + j) - sum * at(a, i * stride + k);
  }
}
