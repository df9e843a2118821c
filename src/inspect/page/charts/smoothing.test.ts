/** Smoothing keeps constants, stays between the extremes, and keeps gaps. */

import assert from "node:assert/strict";
import test from "node:test";
import * as fc from "fast-check";
import { smooth } from "./smoothing.js";

test("without a weight the values stay unchanged", () => {
  assert.deepEqual(smooth([1, null, 3], 0), [1, null, 3]);
});

test("a constant series stays constant from the first value", () => {
  for (const value of smooth([5, 5, 5, 5], 0.9)) assert.ok(Math.abs((value ?? 0) - 5) < 1e-12);
});

test("a gap stays a gap, and does not affect later values", () => {
  const [first, hole, second] = smooth([1, null, 3], 0.5);
  assert.equal(hole, null);
  assert.deepEqual([first, second], smooth([1, 3], 0.5));
  assert.equal(smooth([Number.NaN], 0.5)[0], null);
});

test("smoothing restarts with each fold", () => {
  const whole = smooth([9, 9, 1, 2], 0.9, [0, 0, 1, 1]);
  assert.deepEqual(whole.slice(2), smooth([1, 2], 0.9));
});

test("smoothed values are between the min. and the max. so far", () => {
  const values = fc.array(fc.double({ min: -1e6, max: 1e6, noNaN: true }), { minLength: 1 });
  fc.assert(
    fc.property(values, fc.double({ min: 0.01, max: 0.99, noNaN: true }), (series, weight) => {
      const [least, most] = [Math.min(...series), Math.max(...series)];
      for (const value of smooth(series, weight))
        assert.ok(value !== null && value >= least - 1e-6 && value <= most + 1e-6);
    }),
  );
});
