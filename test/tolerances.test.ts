/** The tolerance table can be met, and still separates right from wrong. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { type FloatDtype, isNear, tolerances } from "./tolerances.js";

/** The largest relative error of one rounding. */
const rounding: Readonly<Record<FloatDtype, number>> = {
  f64: 2 ** -53,
  f32: 2 ** -24,
  f16: 2 ** -11,
  bf16: 2 ** -8,
};

test("no tolerance is below a few roundings of its dtype, which no result could meet", () => {
  for (const [use, table] of Object.entries(tolerances)) {
    for (const [dtype, { relative, absolute }] of Object.entries(table)) {
      const min = 4 * rounding[dtype as FloatDtype];
      assert.ok(
        relative >= min && absolute >= min,
        `${use} in ${dtype}: ${relative} and ${absolute}, below ${min}`,
      );
    }
  }
});

test("no tolerance is so wide that a wrong result would pass: a tenth of the value at most, and less in wider dtypes", () => {
  for (const [use, { f64, f32, f16, bf16 }] of Object.entries(tolerances)) {
    const sizes = [f64, f32, f16, bf16].map(({ relative }) => relative);
    assert.deepEqual(
      sizes,
      sizes.toSorted((a, b) => a - b),
      use,
    );
    assert.ok(bf16.relative <= 0.1, use);
  }
});

test("isNear accepts NaN for NaN and an infinity for itself, and neither for a number", () => {
  const tolerance = { relative: 0.1, absolute: 0.1 };
  const { POSITIVE_INFINITY: inf, NaN: nan } = Number;
  assert.ok(isNear(nan, nan, tolerance) && isNear(inf, inf, tolerance) && isNear(0, -0, tolerance));
  for (const [a, b] of [
    [nan, 1],
    [1, nan],
    [inf, 1],
    [1, -inf],
    [inf, -inf],
  ] as const) {
    assert.ok(!isNear(a, b, { relative: 0.1, absolute: 0.1 }), `${a} and ${b}`);
  }
});
