/** The functions of doubles: erf against 40 digits of mpmath, and pow with the results of C99. */

import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { erf64 } from "./erf64.js";
import { mathFunctions } from "./math-functions.js";

// x, and erf(x) from mpmath, rounded to double.
const reference: readonly (readonly [number, number])[] = [
  [5e-324, 5e-324],
  [1e-300, 1.1283791670955126e-300],
  [1e-10, 1.1283791670955126e-10],
  [0.001, 0.0011283787909692365],
  [0.1, 0.1124629160182849],
  [0.5, 0.5204998778130465],
  [0.84375, 0.7672256612323416],
  [1, 0.8427007929497149],
  [1.25, 0.9229001282564583],
  [1.75, 0.9866716712191824],
  [2, 0.9953222650189527],
  [2.25, 0.9985372834133188],
  [2.2500000000000004, 0.9985372834133188],
  [2.5, 0.999593047982555],
  [3, 0.9999779095030014],
  [3.5, 0.9999992569016276],
  [4.25, 0.9999999981494259],
  [5, 0.9999999999984626],
  [5.75, 0.9999999999999996],
  [5.999, 1.0],
];

test("erf of a double has a relative error below 1e-15", () => {
  for (const [x, expected] of reference) {
    const actual = erf64(x);
    assert.ok(
      Math.abs(actual - expected) <= 1e-15 * expected + 2 ** -1074,
      `erf(${x}) = ${actual}, not ${expected}`,
    );
  }
});

test("erf keeps the sign of its argument, also of zero, never exceeds 1, and returns NaN for NaN", () => {
  fc.assert(
    fc.property(fc.double({ noNaN: true }), (x) => {
      assert.ok(Object.is(erf64(-x), -erf64(x)));
      assert.ok(Math.abs(erf64(x)) <= 1);
      assert.ok(Object.is(Math.sign(erf64(x)), Math.sign(x)));
    }),
  );
  assert.equal(erf64(Number.POSITIVE_INFINITY), 1);
  assert.ok(Number.isNaN(erf64(Number.NaN)));
});

test("erf is monotonic where its two formulas meet", () => {
  for (let x = 2.2; x < 2.3; x += 2 ** -13) assert.ok(erf64(x + 2 ** -13) > erf64(x), `at ${x}`);
});

test("pow of doubles gives 1 where C99 does and JavaScript does not, and is Math.pow elsewhere", () => {
  const { pow } = mathFunctions;
  assert.equal(pow(1, Number.NaN), 1);
  assert.equal(pow(1, Number.POSITIVE_INFINITY), 1);
  assert.equal(pow(-1, Number.NEGATIVE_INFINITY), 1);
  assert.ok(Number.isNaN(pow(-1, Number.NaN)));
  fc.assert(
    fc.property(fc.double(), fc.double(), (x, y) => {
      fc.pre(Math.abs(x) !== 1);
      assert.ok(Object.is(pow(x, y), x ** y));
    }),
  );
});
