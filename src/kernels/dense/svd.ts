/** Singular values and vectors: a QR decomposition, then one-sided Jacobi rotations. Small singular values are accurate too. */

import { at, dotOf, leadsNegative, type Matrix, negateRow, rotateRows, transpose } from "./matrix.js";
import { factorQr } from "./qr.js";

/** A [m, n] = Σ values[i] · left[i] · right[i]ᵀ, with k = min(m, n) terms. */
export interface Svd {
  /** In descending order. [k] */
  readonly values: Float64Array;
  /** A vector in each row; its element of the largest magnitude is positive. [k, m] */
  readonly left: Matrix;
  /** [k, n] */
  readonly right: Matrix;
}

const maxSweeps = 60;

export function factorSvd(a: Matrix, m: number, n: number): Svd {
  if (m < n) {
    const { values, left, right } = factorTall(transpose(a, m, n), n, m);
    return withSigns({ values, left: right, right: left }, m, n);
  }
  return withSigns(factorTall(a, m, n), m, n);
}

/** For m ≥ n. */
function factorTall(a: Matrix, m: number, n: number): Svd {
  if (!a.every(Number.isFinite)) {
    const none = (size: number): Float64Array => new Float64Array(size).fill(Number.NaN);
    return { values: none(n), left: none(n * m), right: none(n * n) };
  }
  // Squares of the elements must not overflow.
  const scale = a.reduce((largest, value) => Math.max(largest, Math.abs(value)), 0) || 1;
  const { q, r } = factorQr(
    a.map((value) => value / scale),
    m,
    n,
  );
  // Rᵀ is a lower triangle: its columns, the rows of R, are nearer to orthogonal than those of A.
  const columns = Float64Array.from(r);
  const rotations = new Float64Array(n * n);
  for (let i = 0; i < n; i++) rotations[i * n + i] = 1;
  for (let sweep = 0; sweep < maxSweeps && rotateAll(columns, rotations, n); sweep++);
  // Rᵀ·V = U·Σ: the rows of `columns` are Σ·Uᵀ and belong to the right side of A, those of `rotations` to the left.
  const lengths = Float64Array.from({ length: n }, (_, i) =>
    Math.sqrt(dotOf(columns, columns, n, i * n, i * n)),
  );
  const order = Array.from(lengths.keys()).sort((x, y) => at(lengths, y) - at(lengths, x));
  const right = new Float64Array(n * n);
  const left = new Float64Array(n * m);
  const largest = at(lengths, order[0] ?? 0);
  for (const [row, from] of order.entries()) {
    const length = at(lengths, from);
    const isZero = length <= largest * 1e-300 || length === 0;
    for (let j = 0; j < n; j++) right[row * n + j] = isZero ? 0 : at(columns, from * n + j) / length;
    if (isZero) completeRow(right, n, row);
    for (let i = 0; i < m; i++) left[row * m + i] = dotOf(q, rotations, n, i * n, from * n);
  }
  return { values: Float64Array.from(order, (from) => scale * at(lengths, from)), left, right };
}

/** One sweep over all pairs of rows. False if all were orthogonal. */
function rotateAll(columns: Matrix, rotations: Matrix, n: number): boolean {
  let hasRotated = false;
  // Rows are orthogonal if the cosine of their angle is below the rounding error of a dot product.
  const orthogonal = Number.EPSILON * Math.max(10, n);
  for (let x = 0; x < n; x++) {
    for (let y = x + 1; y < n; y++) {
      const alpha = dotOf(columns, columns, n, x * n, x * n);
      const beta = dotOf(columns, columns, n, y * n, y * n);
      const gamma = dotOf(columns, columns, n, x * n, y * n);
      if (gamma === 0 || Math.abs(gamma) <= orthogonal * Math.sqrt(alpha * beta)) continue;
      hasRotated = true;
      const zeta = (beta - alpha) / (2 * gamma);
      const tangent = (zeta < 0 ? -1 : 1) / (Math.abs(zeta) + Math.hypot(1, zeta));
      const c = 1 / Math.hypot(1, tangent);
      rotateRows(columns, n, x, y, c, -c * tangent);
      rotateRows(rotations, n, x, y, c, -c * tangent);
    }
  }
  return hasRotated;
}

/** Sets a row to a unit vector that is orthogonal to all rows before it. */
function completeRow(a: Matrix, n: number, row: number): void {
  for (let unit = 0; unit < n; unit++) {
    const candidate = new Float64Array(n);
    candidate[unit] = 1;
    for (let pass = 0; pass < 2; pass++) {
      for (let other = 0; other < row; other++) {
        const projection = dotOf(candidate, a, n, 0, other * n);
        for (let j = 0; j < n; j++) candidate[j] = at(candidate, j) - projection * at(a, other * n + j);
      }
    }
    const length = Math.sqrt(dotOf(candidate, candidate, n, 0, 0));
    // One of n unit vectors is at least this far from fewer than n orthonormal ones.
    if (length < 0.5 / Math.sqrt(n)) continue;
    for (let j = 0; j < n; j++) a[row * n + j] = at(candidate, j) / length;
    return;
  }
}

function withSigns(svd: Svd, m: number, n: number): Svd {
  for (let row = 0; row < svd.values.length; row++) {
    if (!leadsNegative(svd.left, m, row)) continue;
    negateRow(svd.left, m, row);
    negateRow(svd.right, n, row);
  }
  return svd;
}

/** The pseudo-inverse [n, m]: singular values up to `cutoff`, relative to the largest, or `absolute` count as 0. */
export function pseudoInverse(a: Matrix, m: number, n: number, relative: number, absolute: number): Matrix {
  const { values, left, right } = factorSvd(a, m, n);
  const result = new Float64Array(n * m);
  const cutoff = Math.max(absolute, relative * (values[0] ?? 0));
  for (const [term, value] of values.entries()) {
    if (value <= cutoff) continue;
    for (let i = 0; i < n; i++) {
      const factor = at(right, term * n + i) / value;
      for (let j = 0; j < m; j++) result[i * m + j] = at(result, i * m + j) + factor * at(left, term * m + j);
    }
  }
  return result;
}

/** The matrix of cofactors, which is the gradient of the determinant: of singular matrices too. */
export function cofactors(a: Matrix, n: number, signOf: (matrix: Matrix) => number): Matrix {
  const { values, left, right } = factorSvd(a, n, n);
  const sign = signOf(Float64Array.from(left)) * signOf(Float64Array.from(right));
  const result = new Float64Array(n * n);
  for (let term = 0; term < n; term++) {
    let product = sign;
    for (const [other, value] of values.entries()) if (other !== term) product *= value;
    for (let i = 0; i < n; i++)
      for (let j = 0; j < n; j++)
        result[i * n + j] =
          at(result, i * n + j) + product * at(left, term * n + i) * at(right, term * n + j);
  }
  return result;
}
