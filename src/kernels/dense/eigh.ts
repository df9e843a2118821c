/** Eigenvalues and eigenvectors of symmetric matrices: reduction to a tridiagonal matrix, then implicit QR steps with Wilkinson's shift. */

import { at, dotOf, identity, leadsNegative, type Matrix, negateRow, rotateRows } from "./matrix.js";

export interface Eigen {
  /** In ascending order. [n] */
  readonly values: Float64Array;
  /** A vector in each row; its element of the largest magnitude is positive. [n, n] */
  readonly vectors: Matrix;
}

/** QR steps for one eigenvalue. Two or three are usual. */
const maxSteps = 60;

/** Reads the symmetric part of A [n, n]. All NaN if A has elements that are not finite. */
export function factorSymmetric(a: Matrix, n: number): Eigen {
  const work = new Float64Array(n * n);
  for (let i = 0; i < n; i++)
    for (let j = 0; j < n; j++) work[i * n + j] = (at(a, i * n + j) + at(a, j * n + i)) / 2;
  const vectors = identity(n);
  if (!work.every(Number.isFinite))
    return { values: new Float64Array(n).fill(Number.NaN), vectors: vectors.fill(Number.NaN) };
  // Squares of the elements must not overflow.
  const scale = work.reduce((largest, value) => Math.max(largest, Math.abs(value)), 0) || 1;
  for (let i = 0; i < n * n; i++) work[i] = at(work, i) / scale;
  const { diagonal, next } = tridiagonalize(work, vectors, n);
  diagonalize(diagonal, next, vectors, n);
  return sorted(
    diagonal.map((value) => value * scale),
    vectors,
    n,
  );
}

/** Householder reflections turn `a` into a tridiagonal matrix; the rows of `vectors` become the reflected basis. */
function tridiagonalize(
  a: Matrix,
  vectors: Matrix,
  n: number,
): { diagonal: Float64Array; next: Float64Array } {
  const v = new Float64Array(n);
  const p = new Float64Array(n);
  for (let k = 0; k + 2 < n; k++) {
    let largest = 0;
    for (let i = k + 1; i < n; i++) largest = Math.max(largest, Math.abs(at(a, i * n + k)));
    if (largest === 0) continue;
    v.fill(0);
    let sum = 0;
    for (let i = k + 1; i < n; i++) {
      v[i] = at(a, i * n + k) / largest;
      sum += at(v, i) ** 2;
    }
    const norm = Math.sqrt(sum);
    v[k + 1] = at(v, k + 1) + (at(v, k + 1) < 0 ? -norm : norm);
    const scale = 2 / dotOf(v, v, n, 0, 0);
    if (!Number.isFinite(scale)) continue;
    // A ← H·A·H = A − v·wᵀ − w·vᵀ with H = I − scale·v·vᵀ.
    for (let i = k; i < n; i++) p[i] = scale * dotOf(a, v, n, i * n, 0);
    const half = (scale / 2) * rangeDot(p, v, k, n);
    for (let i = k; i < n; i++) p[i] = at(p, i) - half * at(v, i);
    for (let i = k; i < n; i++)
      for (let j = k; j < n; j++) a[i * n + j] = at(a, i * n + j) - at(v, i) * at(p, j) - at(p, i) * at(v, j);
    // The rows of `vectors` are columns of the accumulated product: from the right, H acts on them.
    for (let j = 0; j < n; j++) {
      let projection = 0;
      for (let i = k + 1; i < n; i++) projection += at(v, i) * at(vectors, i * n + j);
      projection *= scale;
      for (let i = k + 1; i < n; i++) vectors[i * n + j] = at(vectors, i * n + j) - projection * at(v, i);
    }
  }
  const diagonal = Float64Array.from({ length: n }, (_, i) => at(a, i * n + i));
  const next = Float64Array.from({ length: n }, (_, i) => (i + 1 < n ? at(a, (i + 1) * n + i) : 0));
  return { diagonal, next };
}

function rangeDot(a: Float64Array, b: Float64Array, from: number, to: number): number {
  let sum = 0;
  for (let i = from; i < to; i++) sum += at(a, i) * at(b, i);
  return sum;
}

/** Givens rotations chase the bulge down the tridiagonal matrix until each element next to the diagonal is negligible. */
function diagonalize(d: Float64Array, e: Float64Array, vectors: Matrix, n: number): void {
  const isNegligible = (i: number): boolean =>
    Math.abs(at(e, i)) <= Number.EPSILON * (Math.abs(at(d, i)) + Math.abs(at(d, i + 1))) ||
    Math.abs(at(e, i)) < 1e-300;
  let steps = 0;
  for (let last = n - 1; last > 0; ) {
    if (isNegligible(last - 1)) {
      e[last - 1] = 0;
      last--;
      steps = 0;
      continue;
    }
    if (steps++ > maxSteps) {
      d.fill(Number.NaN);
      vectors.fill(Number.NaN);
      return;
    }
    let first = last - 1;
    while (first > 0 && !isNegligible(first - 1)) first--;
    const gap = (at(d, last - 1) - at(d, last)) / 2;
    const side = at(e, last - 1);
    const shift = at(d, last) - (side * side) / (gap + (gap < 0 ? -1 : 1) * Math.hypot(gap, side));
    let [x, z] = [at(d, first) - shift, at(e, first)];
    for (let k = first; k < last; k++) {
      const length = Math.hypot(x, z);
      const [c, s] = length === 0 ? [1, 0] : [x / length, z / length];
      if (k > first) e[k - 1] = length;
      const [dk, dn, ek] = [at(d, k), at(d, k + 1), at(e, k)];
      d[k] = c * c * dk + 2 * c * s * ek + s * s * dn;
      d[k + 1] = s * s * dk - 2 * c * s * ek + c * c * dn;
      e[k] = c * s * (dn - dk) + (c * c - s * s) * ek;
      if (k + 1 < last) {
        x = at(e, k);
        z = s * at(e, k + 1);
        e[k + 1] = c * at(e, k + 1);
      }
      rotateRows(vectors, n, k, k + 1, c, s);
    }
  }
}

function sorted(values: Float64Array, vectors: Matrix, n: number): Eigen {
  const order = Array.from(values.keys()).sort((a, b) => at(values, a) - at(values, b));
  const result = new Float64Array(n * n);
  for (const [row, from] of order.entries()) {
    result.set(vectors.subarray(from * n, (from + 1) * n), row * n);
    if (leadsNegative(result, n, row)) negateRow(result, n, row);
  }
  return { values: Float64Array.from(order, (from) => at(values, from)), vectors: result };
}
