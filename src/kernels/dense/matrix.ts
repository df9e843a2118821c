/** Matrices of doubles in row-major order, with the few products that the routines share. */

export type Matrix = Float64Array;

export function identity(n: number): Matrix {
  const a = new Float64Array(n * n);
  for (let i = 0; i < n; i++) a[i * n + i] = 1;
  return a;
}

/** [m, n] → [n, m]. */
export function transpose(a: Matrix, m: number, n: number): Matrix {
  const result = new Float64Array(m * n);
  for (let i = 0; i < m; i++) for (let j = 0; j < n; j++) result[j * m + i] = at(a, i * n + j);
  return result;
}

/** [m, k] · [k, n]. */
export function multiply(a: Matrix, b: Matrix, m: number, k: number, n: number): Matrix {
  const c = new Float64Array(m * n);
  for (let i = 0; i < m; i++) {
    for (let p = 0; p < k; p++) {
      const factor = at(a, i * k + p);
      for (let j = 0; j < n; j++) c[i * n + j] = at(c, i * n + j) + factor * at(b, p * n + j);
    }
  }
  return c;
}

/** An element that exists: the compiler can't know that an index is inside. */
export function at(a: Float64Array, index: number): number {
  return a[index] as number;
}

/** Σ a[i]·b[i] of two ranges of n elements. */
export function dotOf(a: Matrix, b: Matrix, n: number, fromA: number, fromB: number): number {
  let sum = 0;
  for (let i = 0; i < n; i++) sum += at(a, fromA + i) * at(b, fromB + i);
  return sum;
}

/** Replaces rows x and y of n elements by c·x + s·y and c·y − s·x. */
export function rotateRows(a: Matrix, n: number, x: number, y: number, c: number, s: number): void {
  for (let i = 0; i < n; i++) {
    const [left, right] = [at(a, x * n + i), at(a, y * n + i)];
    a[x * n + i] = c * left + s * right;
    a[y * n + i] = c * right - s * left;
  }
}

/** Negates a row of n elements. */
export function negateRow(a: Matrix, n: number, row: number): void {
  for (let i = 0; i < n; i++) a[row * n + i] = -at(a, row * n + i);
}

/** True if the element of the largest magnitude in a row is negative; the first of equal ones decides. */
export function leadsNegative(a: Matrix, n: number, row: number): boolean {
  let largest = 0;
  for (let i = 0; i < n; i++) {
    const value = at(a, row * n + i);
    // A margin, so that rounding does not choose between equal magnitudes.
    if (Math.abs(value) > Math.abs(largest) * (1 + 1e-9)) largest = value;
  }
  return largest < 0;
}
