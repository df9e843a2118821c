/** The normal distribution function and its inverse: known values, both tails, and each as the inverse of the other. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { inverseNormalCdf, normalCdf } from "./inverse-normal.js";

function assertClose(actual: number, expected: number, relative: number): void {
  assert.ok(Math.abs(actual - expected) <= relative * Math.abs(expected), `${actual} instead of ${expected}`);
}

test("quantiles have the known values, in the middle and in both tails", () => {
  assert.equal(inverseNormalCdf(0.5), 0);
  assertClose(inverseNormalCdf(0.975), 1.9599639845400545, 1e-15);
  assertClose(inverseNormalCdf(0.9), 1.2815515655446004, 1e-15);
  assertClose(inverseNormalCdf(1e-3), -3.090232306167813, 1e-15);
  assertClose(inverseNormalCdf(1e-20), -9.262340089798405, 1e-15);
  assertClose(inverseNormalCdf(1e-280), -35.78342139466302, 1e-15);
});

test("probabilities have the known values", () => {
  assert.equal(normalCdf(0), 0.5);
  assertClose(normalCdf(-2), 0.02275013194817921, 1e-14);
  assertClose(normalCdf(1), 0.8413447460685429, 1e-15);
  assertClose(normalCdf(-10), 7.619853024160527e-24, 1e-11);
  assert.equal(normalCdf(Number.NEGATIVE_INFINITY), 0);
  assert.equal(normalCdf(Number.POSITIVE_INFINITY), 1);
});

test("a quantile's probability is the quantile's argument, from −37 to 5 standard deviations", () => {
  for (let x = -37; x <= 5; x += 0.0625)
    assert.ok(Math.abs(inverseNormalCdf(normalCdf(x)) - x) < 2e-10, `${x}`);
});
