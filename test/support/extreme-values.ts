/** The value of each function at the ends: zeros with their signs, subnormals, infinities, NaN. C99's Annex F. */

import assert from "node:assert/strict";
import type { VectorMathName } from "../../src/kernels/codegen/wasm/math/index.js";
import { roundToBf16, roundToTf32 } from "./roundings.js";
import { ulpError } from "./vector-math.js";

const inf = Number.POSITIVE_INFINITY;
const nan = Number.NaN;
/** The smallest subnormal float. */
export const tiny = 2 ** -149;

const { E, LN2, PI, SQRT1_2 } = Math;
const sin = (x: number) => Math.sin(Math.fround(x));
const cos = (x: number) => Math.cos(Math.fround(x));
const tan = (x: number) => Math.tan(Math.fround(x));
const ln = Math.log;

/** The inputs, and one row of results for each function, in the same order. */
export const extremeInputs: readonly number[] = [
  ...[0, -0, tiny, -tiny, 1, -1, 1e4, -1e4],
  ...[1e30, -1e30, inf, -inf, nan],
];

export const extremeValues: Readonly<Record<Exclude<VectorMathName, "pow" | "atan2">, readonly number[]>> = {
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
  roundTf32: [0, -0, 0, -0, 1, -1, 1e4, -1e4, roundToTf32(1e30), -roundToTf32(1e30), inf, -inf, nan],
  roundBf16: [0, -0, 0, -0, 1, -1, 9984, -9984, roundToBf16(1e30), -roundToBf16(1e30), inf, -inf, nan],
  roundF16: [0, -0, 0, -0, 1, -1, 1e4, -1e4, inf, -inf, inf, -inf, nan],
  rsqrt: [inf, -inf, 2 ** 74 * SQRT1_2 * 2, nan, 1, nan, 0.01, nan, 1e-15, nan, 0, nan, nan],
  exp2: [1, 1, 1, 1, 2, 0.5, inf, 0, inf, 0, inf, 0, nan],
  log2: [-inf, -inf, -149, nan, 0, nan, Math.log2(1e4), nan, Math.log2(1e30), nan, inf, nan, nan],
  log10: [
    -inf,
    -inf,
    -149 * Math.log10(2),
    nan,
    0,
    nan,
    4,
    nan,
    Math.log10(Math.fround(1e30)),
    nan,
    inf,
    nan,
    nan,
  ],
  tan: [0, -0, tiny, -tiny, tan(1), -tan(1), tan(1e4), -tan(1e4), tan(1e30), -tan(1e30), nan, nan, nan],
  asin: [0, -0, tiny, -tiny, PI / 2, -PI / 2, nan, nan, nan, nan, nan, nan, nan],
  acos: [PI / 2, PI / 2, PI / 2, PI / 2, 0, PI, nan, nan, nan, nan, nan, nan, nan],
  atan: [
    0,
    -0,
    tiny,
    -tiny,
    PI / 4,
    -PI / 4,
    Math.atan(1e4),
    -Math.atan(1e4),
    PI / 2,
    -PI / 2,
    PI / 2,
    -PI / 2,
    nan,
  ],
  sinh: [0, -0, tiny, -tiny, Math.sinh(1), -Math.sinh(1), inf, -inf, inf, -inf, inf, -inf, nan],
  cosh: [1, 1, 1, 1, Math.cosh(1), Math.cosh(1), inf, inf, inf, inf, inf, inf, nan],
  asinh: [
    0,
    -0,
    tiny,
    -tiny,
    Math.asinh(1),
    -Math.asinh(1),
    Math.asinh(1e4),
    -Math.asinh(1e4),
    Math.asinh(1e30),
    -Math.asinh(1e30),
    inf,
    -inf,
    nan,
  ],
  acosh: [nan, nan, nan, nan, 0, nan, Math.acosh(1e4), nan, Math.acosh(1e30), nan, inf, nan, nan],
  atanh: [0, -0, tiny, -tiny, inf, -inf, nan, nan, nan, nan, nan, nan, nan],
  erfc: [1, 1, 1, 1, 0.15729920705028513, 1.842700792949715, 0, 2, 0, 2, 0, 2, nan],
};

/** Exact if the expected value is exact: zeros, ones, infinities, NaN. Otherwise within two ulp. */
export function checkExtreme(what: string, actual: number, expected: number): void {
  const isClose = !Number.isInteger(expected) && ulpError(actual, expected) <= 2;
  assert.ok(isClose || Object.is(actual, Math.fround(expected)), `${what} = ${actual}, expected ${expected}`);
}
