/** What each function says at the ends: zeros with their signs, subnormals, infinities, NaN. C99's Annex F. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { once, ulpError } from "../../../test/support/vector-math.js";
import type { VectorMathName } from "./table.js";

const inf = Number.POSITIVE_INFINITY;
const nan = Number.NaN;
/** The smallest subnormal float. */
const tiny = 2 ** -149;

// The inputs, and one row of results for each function, in the same order.
const inputs = [0, -0, tiny, -tiny, 1, -1, 1e4, -1e4, 1e30, -1e30, inf, -inf, nan];

const { E, LN2, SQRT1_2 } = Math;
const sin = (x: number) => Math.sin(Math.fround(x));
const cos = (x: number) => Math.cos(Math.fround(x));
const ln = Math.log;

const table: Record<Exclude<VectorMathName, "pow">, readonly number[]> = {
  exp: [1, 1, 1, 1, E, 1 / E, inf, 0, inf, 0, inf, 0, nan],
  expm1: [0, -0, tiny, -tiny, E - 1, 1 / E - 1, inf, -1, inf, -1, inf, -1, nan],
  log: [-inf, -inf, -149 * LN2, nan, 0, nan, ln(1e4), nan, ln(1e30), nan, inf, nan, nan],
  log1p: [0, -0, tiny, -tiny, LN2, -inf, ln(10001), nan, ln(1e30), nan, inf, nan, nan],
  tanh: [0, -0, tiny, -tiny, Math.tanh(1), -Math.tanh(1), 1, -1, 1, -1, 1, -1, nan],
  sigmoid: [0.5, 0.5, 0.5, 0.5, E / (1 + E), 1 / (1 + E), 1, 0, 1, 0, 1, 0, nan],
  softplus: [LN2, LN2, LN2, LN2, ln(1 + E), ln(1 + 1 / E), 1e4, 0, 1e30, 0, inf, 0, nan],
  sin: [0, -0, tiny, -tiny, sin(1), -sin(1), sin(1e4), -sin(1e4), sin(1e30), -sin(1e30), nan, nan, nan],
  cos: [1, 1, 1, 1, cos(1), cos(1), cos(1e4), cos(1e4), cos(1e30), cos(1e30), nan, nan, nan],
  erf: [0, -0, tiny, -tiny, 0.8427007929497149, -0.8427007929497149, 1, -1, 1, -1, 1, -1, nan],
  rsqrt: [inf, -inf, 2 ** 74 * SQRT1_2 * 2, nan, 1, nan, 0.01, nan, 1e-15, nan, 0, nan, nan],
};

/** Exact where the expected value is: zeros, ones, infinities, NaN. Else within two ulp. */
function check(what: string, found: number, expected: number): void {
  const isClose = !Number.isInteger(expected) && ulpError(found, expected) <= 2;
  assert.ok(isClose || Object.is(found, Math.fround(expected)), `${what} = ${found}, expected ${expected}`);
}

for (const [name, row] of Object.entries(table)) {
  test(`${name} of zeros, subnormals, huge numbers, infinities and NaN is what C99 says`, () => {
    const apply = once(name as VectorMathName);
    assert.equal(row.length, inputs.length);
    for (const [index, x] of inputs.entries()) check(`${name}(${x})`, apply(x), row[index]!);
  });
}

test("exp overflows to Infinity and underflows to zero where it should, and not before", () => {
  const exp = once("exp");
  assert.equal(exp(89), inf);
  assert.equal(exp(88.73), inf);
  check("exp(88.72)", exp(88.72), Math.exp(Math.fround(88.72)));
  assert.equal(exp(-200), 0);
  assert.equal(exp(-104), 0);
  assert.equal(exp(-103.5), tiny);
});

test("a logarithm just left of its end is NaN, and a function that saturates has saturated", () => {
  assert.ok(Number.isNaN(once("log1p")(-1.0000001)));
  assert.ok(Number.isNaN(once("log")(-tiny)));
  assert.equal(once("tanh")(10), 1);
  assert.equal(once("erf")(-4), -1);
  assert.equal(once("sigmoid")(20), 1);
});

test("pow of zeros, ones, negative bases, infinities and NaN is what C99 says", () => {
  const pow = once("pow");
  const rows: readonly (readonly [base: number, power: number, result: number])[] = [
    ...inputs.flatMap((x) => [[x, 0, 1] as const, [x, -0, 1] as const, [1, x, 1] as const]),
    [-1, inf, 1],
    [-1, -inf, 1],
    [-1, nan, nan],
    [nan, 1, nan],
    [2, nan, nan],
    [-2, 3, -8],
    [-2, 2, 4],
    [-2, -1, -0.5],
    [-2, 0.5, nan],
    [-1e30, 1e-30, nan],
    [-2, 2 ** 24 + 2, inf],
    [-1, 2 ** 24 - 1, -1],
    [-1, 2 ** 24, 1],
    [2, 127, 2 ** 127],
    [2, 128, inf],
    [-2, 129, -inf],
    [2, -149, tiny],
    [-2, -149, -tiny],
    [2, -151, 0],
    [-2, -151, -0],
    [tiny, 1, tiny],
    [tiny, -1, inf],
    [0, 3, 0],
    [-0, 3, -0],
    [-0, 2, 0],
    [-0, 0.5, 0],
    [0, -1, inf],
    [-0, -1, -inf],
    [-0, -2, inf],
    [-0, -0.5, inf],
    [0, inf, 0],
    [0, -inf, inf],
    [0.5, inf, 0],
    [0.5, -inf, inf],
    [-0.5, -inf, inf],
    [2, inf, inf],
    [2, -inf, 0],
    [inf, 0.5, inf],
    [inf, -0.5, 0],
    [inf, inf, inf],
    [-inf, 3, -inf],
    [-inf, 2, inf],
    [-inf, 0.5, inf],
    [-inf, -3, -0],
    [-inf, -0.5, 0],
    [-inf, -inf, 0],
    [1e30, 1e30, inf],
    [1e30, -1e30, 0],
    [4, 0.5, 2],
    [10, -1, 0.1],
  ];
  for (const [base, power, result] of rows) check(`pow(${base}, ${power})`, pow(base, power), result);
});
