/** The maximum error in ulp of the functions of four floats, against float64 over the whole range of float. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { effort } from "../../../../../test/support/effort.js";
import { roundToBf16, roundToF16, roundToTf32 } from "../../../../../test/support/roundings.js";
import { overArrays, ulpError } from "../../../../../test/support/vector-math.js";
import { mathFunctions } from "../../../../driver/index.js";
import type { VectorMathName } from "./table.js";

interface Bound {
  readonly exact: (x: number) => number;
  readonly ulps: number;
  /** The range in which the function is mostly used, sampled as densely as the whole range. */
  readonly dense: readonly [number, number];
}

const bounds: Record<Exclude<VectorMathName, "pow" | "atan2">, Bound> = {
  exp: { exact: Math.exp, ulps: 0.8, dense: [-104, 89] },
  exp2: { exact: mathFunctions.exp2, ulps: 0.6, dense: [-150, 129] },
  expm1: { exact: Math.expm1, ulps: 1, dense: [-2, 2] },
  log: { exact: Math.log, ulps: 0.51, dense: [0.5, 2] },
  log2: { exact: Math.log2, ulps: 0.51, dense: [0.5, 2] },
  log10: { exact: Math.log10, ulps: 0.51, dense: [0.5, 2] },
  log1p: { exact: Math.log1p, ulps: 0.51, dense: [-1, 1] },
  tanh: { exact: Math.tanh, ulps: 1.5, dense: [-10, 10] },
  sigmoid: { exact: sigmoid, ulps: 1.75, dense: [-104, 20] },
  softplus: {
    exact: (x) => Math.max(x, 0) + Math.log1p(Math.exp(-Math.abs(x))),
    ulps: 0.6,
    dense: [-104, 20],
  },
  sin: { exact: Math.sin, ulps: 0.51, dense: [-1e5, 1e5] },
  cos: { exact: Math.cos, ulps: 0.51, dense: [-1e5, 1e5] },
  tan: { exact: Math.tan, ulps: 0.51, dense: [-1e5, 1e5] },
  asin: { exact: Math.asin, ulps: 0.51, dense: [-1, 1] },
  acos: { exact: Math.acos, ulps: 0.51, dense: [-1, 1] },
  atan: { exact: Math.atan, ulps: 0.51, dense: [-4, 4] },
  sinh: { exact: Math.sinh, ulps: 0.8, dense: [-90, 90] },
  cosh: { exact: Math.cosh, ulps: 0.6, dense: [-90, 90] },
  asinh: { exact: Math.asinh, ulps: 0.51, dense: [-4, 4] },
  acosh: { exact: Math.acosh, ulps: 0.51, dense: [1, 4] },
  atanh: { exact: Math.atanh, ulps: 0.51, dense: [-1, 1] },
  erfc: { exact: mathFunctions.erfc, ulps: 0.6, dense: [-4, 11] },
  erf: { exact: mathFunctions.erf, ulps: 1, dense: [-4, 4] },
  roundTf32: { exact: roundToTf32, ulps: 0, dense: [-2, 2] },
  roundBf16: { exact: roundToBf16, ulps: 0, dense: [-2, 2] },
  roundF16: { exact: roundToF16, ulps: 0, dense: [-7e4, 7e4] },
  rsqrt: { exact: (x) => 1 / Math.sqrt(x), ulps: 1.5, dense: [0, 4] },
};

function sigmoid(x: number): number {
  return x < 0 ? Math.exp(x) / (1 + Math.exp(x)) : 1 / (1 + Math.exp(-x));
}

const samples = effort({ quick: 50_000, thorough: 200_000 });

/** Floats that are spread evenly over all bit patterns, including NaNs and infinities: steps of the golden ratio of 2³². */
function overAllFloats(count: number, start = 0): Float32Array {
  const bits = Uint32Array.from({ length: count }, (_, index) => Math.imul(index + start, 0x9e3779b1));
  return new Float32Array(bits.buffer);
}

function overInterval(count: number, [low, high]: readonly [number, number]): Float32Array {
  return Float32Array.from({ length: count }, (_, index) => low + ((high - low) * index) / (count - 1));
}

/** The maximum error and its argument. A NaN instead of a number, or a number instead of a NaN, is an infinite error. */
function worstOf(actual: Float32Array, exact: (index: number) => number): { ulps: number; index: number } {
  let worst = { ulps: 0, index: 0 };
  for (let index = 0; index < actual.length; index++) {
    const ulps = ulpError(actual[index]!, exact(index));
    if (ulps > worst.ulps) worst = { ulps, index };
  }
  return worst;
}

for (const [name, { exact, ulps, dense }] of Object.entries(bounds)) {
  test(`${name} is within ${ulps} ulp of float64 over the whole range of float`, (t) => {
    const apply = overArrays(name as VectorMathName);
    const worst = [overAllFloats(samples), overInterval(samples, dense)].map((xs) => {
      const actual = apply(xs);
      const { ulps: error, index } = worstOf(actual, (at) => exact(xs[at]!));
      assert.ok(error <= ulps, `${name}(${xs[index]}) = ${actual[index]}, ${error} ulp off`);
      return error;
    });
    t.diagnostic(`${name}: ${Math.max(...worst).toFixed(2)} ulp`);
  });
}

test("pow is within 0.6 ulp of float64, for every base and exponent", (t) => {
  const apply = overArrays("pow");
  const exact = mathFunctions.pow;
  const grids = [
    { bases: overAllFloats(samples), powers: overAllFloats(samples, 0x5bd1e995) },
    { bases: overAllFloats(samples), powers: overInterval(samples, [-4, 4]) },
    { bases: overInterval(samples, [0, 8]), powers: overAllFloats(samples).map((y) => y % 40 || 1) },
    {
      bases: overInterval(samples, [-20, 20]),
      powers: overAllFloats(samples).map((y) => Math.round(y % 30)),
    },
    { bases: overInterval(samples, [0.999, 1.001]), powers: overInterval(samples, [-1e5, 1e5]).toReversed() },
  ];
  const worst = grids.map(({ bases, powers }) => {
    const actual = apply(bases, powers);
    const { ulps, index } = worstOf(actual, (at) => exact(bases[at]!, powers[at]!));
    assert.ok(ulps <= 0.6, `${bases[index]} ** ${powers[index]} = ${actual[index]}, ${ulps} ulp off`);
    return ulps;
  });
  t.diagnostic(`pow: ${Math.max(...worst).toFixed(2)} ulp`);
});

test("atan2 is within 0.51 ulp of float64 in all quadrants, and follows C99 at zeros and infinities", () => {
  const apply = overArrays("atan2");
  const grids = [
    { ys: overAllFloats(samples), xs: overAllFloats(samples, 0x5bd1e995) },
    { ys: overInterval(samples, [-3, 3]), xs: overInterval(samples, [-20, 20]).map((x) => (x * 7) % 3) },
  ];
  for (const { ys, xs } of grids) {
    const actual = apply(ys, xs);
    const { ulps, index } = worstOf(actual, (at) => Math.atan2(ys[at]!, xs[at]!));
    assert.ok(ulps <= 0.51, `atan2(${ys[index]}, ${xs[index]}) = ${actual[index]}, ${ulps} ulp off`);
  }
  const special = [0, -0, 1, -1, Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY, Number.NaN, 2 ** -149];
  const [ys, xs] = [special.flatMap((y) => special.map(() => y)), special.flatMap(() => special)];
  for (const [index, angle] of apply(Float32Array.from(ys), Float32Array.from(xs)).entries()) {
    const expected = Math.fround(Math.atan2(ys[index]!, xs[index]!));
    assert.ok(Object.is(angle, expected), `atan2(${ys[index]}, ${xs[index]}) = ${angle}, not ${expected}`);
  }
});

test("sin and cos are accurate for the huge float that is nearest to a multiple of a quarter turn", () => {
  // Found by trying every float from 2⁹⁰ on; at the first of them cos is 1.6e-9.
  const xs = new Float32Array([
    7.729178919452902e28, 1.5458357838905804e29, 4.3865578967101227e33, 8.773115793420245e33,
    1.2614587862244266e38, 2.5229175724488532e38, 6.246896987650012e34, 1.754623158684049e34,
  ]);
  for (const [name, exact] of [
    ["sin", Math.sin] as const,
    ["cos", Math.cos] as const,
    ["tan", Math.tan] as const,
  ]) {
    const { ulps, index } = worstOf(overArrays(name)(xs), (at) => exact(xs[at]!));
    assert.ok(ulps <= 0.51, `${name}(${xs[index]}) is ${ulps} ulp off`);
  }
});

test("a subnormal result is a subnormal number, not zero", () => {
  const smallest = 2 ** -149;
  const xs = new Float32Array([-103, -100, -95, -88]);
  for (const name of ["exp", "sigmoid", "softplus"] as const) {
    const actual = overArrays(name)(xs);
    for (const [index, x] of xs.entries()) {
      assert.ok(Math.abs(actual[index]! - Math.exp(x)) <= smallest, `${name}(${x}) = ${actual[index]}`);
    }
  }
  const tiny = new Float32Array([smallest, -smallest, 3 * smallest, 2 ** -127]);
  for (const name of [
    "expm1",
    "log1p",
    "tanh",
    "sin",
    "tan",
    "asin",
    "atan",
    "sinh",
    "asinh",
    "atanh",
    "erf",
  ] as const) {
    const slope = name === "erf" ? 2 / Math.sqrt(Math.PI) : 1;
    assert.deepEqual(
      overArrays(name)(tiny),
      tiny.map((x) => x * slope),
      name,
    );
  }
});

test("an error of one step counts as one ulp, and overflow as 2¹²⁸", () => {
  assert.equal(ulpError(1 + 2 ** -23, 1), 1);
  assert.equal(ulpError(2 ** -149, 0), 1);
  assert.equal(ulpError(Number.POSITIVE_INFINITY, 1e300), 0);
  assert.equal(ulpError((2 - 2 ** -23) * 2 ** 127, 1e300), 1);
  assert.equal(ulpError(Number.NaN, 1), Number.POSITIVE_INFINITY);
  assert.equal(ulpError(1, Number.NaN), Number.POSITIVE_INFINITY);
});
