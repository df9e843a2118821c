/** Special values of each function by Annex F of C99: zeros with their signs, subnormals, infinities, NaN. */

import assert from "node:assert/strict";
import { test } from "node:test";
import {
  checkExtreme,
  extremeInputs,
  extremeValues,
  tiny,
} from "../../../../../test/support/extreme-values.js";
import { once } from "../../../../../test/support/vector-math.js";
import type { VectorMathName } from "./table.js";

const inf = Number.POSITIVE_INFINITY;
const nan = Number.NaN;

for (const [name, row] of Object.entries(extremeValues)) {
  test(`${name} of zeros, subnormals, huge numbers, infinities and NaN follows C99`, () => {
    const apply = once(name as VectorMathName);
    assert.equal(row.length, extremeInputs.length);
    for (const [index, x] of extremeInputs.entries()) checkExtreme(`${name}(${x})`, apply(x), row[index]!);
  });
}

test("exp overflows to Infinity and underflows to zero at the exact limits", () => {
  const exp = once("exp");
  assert.equal(exp(89), inf);
  assert.equal(exp(88.73), inf);
  checkExtreme("exp(88.72)", exp(88.72), Math.exp(Math.fround(88.72)));
  assert.equal(exp(-200), 0);
  assert.equal(exp(-104), 0);
  assert.equal(exp(-103.5), tiny);
});

test("a logarithm just below its domain is NaN, and saturating functions saturate", () => {
  assert.ok(Number.isNaN(once("log1p")(-1.0000001)));
  assert.ok(Number.isNaN(once("log")(-tiny)));
  assert.equal(once("tanh")(10), 1);
  assert.equal(once("erf")(-4), -1);
  assert.equal(once("sigmoid")(20), 1);
});

test("pow of zeros, ones, negative bases, infinities and NaN follows C99", () => {
  const pow = once("pow");
  const rows: readonly (readonly [base: number, power: number, result: number])[] = [
    ...extremeInputs.flatMap((x) => [[x, 0, 1] as const, [x, -0, 1] as const, [1, x, 1] as const]),
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
  for (const [base, power, result] of rows) checkExtreme(`pow(${base}, ${power})`, pow(base, power), result);
});
