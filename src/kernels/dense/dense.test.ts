/** The routines of dense linear algebra: each decomposition gives its matrix back, for matrices without full rank and equal values too. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { factorSymmetric } from "./eigh.js";
import { factorLu, invert } from "./lu.js";
import { identity, type Matrix, multiply, transpose } from "./matrix.js";
import { exponential } from "./matrix-exp.js";
import { factorQr } from "./qr.js";
import { factorSvd } from "./svd.js";

let state = 7;
/** From −1 to 1. */
function draw(): number {
  state = (Math.imul(state, 1_664_525) + 1_013_904_223) | 0;
  return state / 2 ** 31;
}

const random = (m: number, n: number): Matrix => Float64Array.from({ length: m * n }, draw);

function requireNear(actual: Matrix, expected: Matrix, what: string, tolerance = 1e-12): void {
  assert.equal(actual.length, expected.length, what);
  const scale = expected.reduce((largest, value) => Math.max(largest, Math.abs(value)), 1);
  for (const [index, value] of expected.entries())
    assert.ok(
      Math.abs(actual[index]! - value) <= tolerance * scale,
      `${what}, element ${index}: ${actual[index]} and ${value}`,
    );
}

/** Rows that are orthonormal. */
function requireOrthonormal(rows: Matrix, count: number, length: number, what: string): void {
  requireNear(multiply(rows, transpose(rows, count, length), count, length, count), identity(count), what);
}

/** Of rank 2, however large. */
const lowRank = (m: number, n: number): Matrix => multiply(random(m, 2), random(2, n), m, 2, n);

const matrices: Readonly<Record<string, (m: number, n: number) => Matrix>> = {
  "a random matrix": random,
  "a matrix of rank 2": lowRank,
  "a matrix of zeros": (m, n) => new Float64Array(m * n),
  "a matrix of ones": (m, n) => new Float64Array(m * n).fill(1),
  "a huge matrix": (m, n) => random(m, n).map((value) => value * 1e200),
  "a tiny matrix": (m, n) => random(m, n).map((value) => value * 1e-200),
};

const sizes = [
  [1, 1],
  [2, 5],
  [5, 2],
  [17, 17],
  [24, 9],
] as const;

for (const [what, make] of Object.entries(matrices)) {
  test(`${what} is the product of its factors`, () => {
    for (const [m, n] of sizes) {
      const a = make(m, n);
      const k = Math.min(m, n);
      const scale = a.reduce((largest, value) => Math.max(largest, Math.abs(value)), 0) || 1;
      const scaled = (matrix: Matrix): Matrix => matrix.map((value) => value / scale);
      const name = (factors: string) => `${factors} of ${what} [${m}, ${n}]`;

      const { q, r } = factorQr(Float64Array.from(a), m, n);
      requireNear(scaled(multiply(q, r, m, k, n)), scaled(a), name("QR"));
      requireOrthonormal(transpose(q, m, k), k, m, name("Q"));
      const whole = factorQr(Float64Array.from(a), m, n, m);
      requireOrthonormal(transpose(whole.q, m, m), m, m, name("the whole Q"));

      const { values, left, right } = factorSvd(a, m, n);
      const weighted = transpose(left, k, m).map((value, index) => value * values[index % k]!);
      requireNear(scaled(multiply(weighted, right, m, k, n)), scaled(a), name("the SVD"));
      requireOrthonormal(left, k, m, name("U"));
      requireOrthonormal(right, k, n, name("V"));
      assert.deepEqual(
        [...values].sort((x, y) => y - x),
        [...values],
        name("the order of the singular values"),
      );

      const symmetric = Float64Array.from({ length: m * m }, (_, index) => {
        const [i, j] = [Math.floor(index / m), index % m];
        return a[Math.min(i, j) * n + (Math.max(i, j) % n)] ?? 0;
      });
      const eigen = factorSymmetric(symmetric, m);
      const columns = transpose(eigen.vectors, m, m).map((value, index) => value * eigen.values[index % m]!);
      requireNear(scaled(multiply(columns, eigen.vectors, m, m, m)), scaled(symmetric), name("eigenvectors"));
      requireOrthonormal(eigen.vectors, m, m, name("the eigenvectors"));
    }
  });
}

test("a matrix times its inverse is the identity, and a pivot of 0 is counted from 1", () => {
  const a = random(12, 12);
  const { inverse } = invert(Float64Array.from(a), 12);
  requireNear(multiply(a, inverse, 12, 12, 12), identity(12), "A · A⁻¹", 1e-10);
  assert.equal(factorLu(Float64Array.of(1, 2, 2, 4), 2, 2).info, 2);
  assert.equal(factorLu(Float64Array.of(0, 1, 0, 4), 2, 2).info, 1);
});

test("the exponential of a diagonal matrix has the exponentials on its diagonal, for large elements too", () => {
  const result = exponential(Float64Array.of(1, 0, 0, 0, -20, 0, 0, 0, 30), 3);
  const expected = Float64Array.of(Math.E, 0, 0, 0, Math.exp(-20), 0, 0, 0, Math.exp(30));
  for (const [index, value] of expected.entries())
    assert.ok(Math.abs(result[index]! - value) <= 1e-12 * value + 1e-20);
});

test("NaN and infinities end, with NaN", () => {
  for (const bad of [Number.NaN, Number.POSITIVE_INFINITY]) {
    const a = Float64Array.of(1, bad, bad, 2);
    assert.ok(factorSvd(a, 2, 2).values.every(Number.isNaN));
    assert.ok(factorSymmetric(a, 2).values.every(Number.isNaN));
    assert.ok(exponential(a, 2).every(Number.isNaN));
  }
});
