/** Drawn numbers have the statistics of their distribution. The seeds are fixed, so that these tests pass always or never. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { keepMask, thresholdOf, uniform } from "./distributions.js";
import { normal } from "./normal.js";
import { permutation } from "./permutation.js";
import { drawWords } from "./random-stream.js";

function mean(values: readonly number[]): number {
  return values.reduce((sum, value) => sum + value, 0) / values.length;
}

function variance(values: readonly number[]): number {
  const centre = mean(values);
  return mean(values.map((value) => (value - centre) ** 2));
}

/** The mean product of neighbours: about 0 if they are independent with mean 0. */
function neighbourGemm(values: readonly number[]): number {
  return mean(values.slice(1).map((value, index) => value * values[index]!));
}

/** The chi-squared statistic of `buckets` equally likely outcomes. */
function chiSquare(outcomes: readonly number[], buckets: number): number {
  const counts = Array.from({ length: buckets }, () => 0);
  for (const outcome of outcomes) counts[outcome]! += 1;
  const expected = outcomes.length / buckets;
  return counts.reduce((sum, count) => sum + (count - expected) ** 2 / expected, 0);
}

/** The 99.9th percentile of the statistic, by the number of buckets. */
const chiSquareLimits = { 8: 24.32, 24: 49.73, 64: 103.44 } as const;

function assertEven(outcomes: readonly number[], buckets: keyof typeof chiSquareLimits): void {
  const actual = chiSquare(outcomes, buckets);
  assert.ok(actual < chiSquareLimits[buckets], `chi-square ${actual} over ${buckets} buckets`);
}

function assertNear(actual: number, expected: number, tolerance: number): void {
  assert.ok(Math.abs(actual - expected) < tolerance, `${actual} instead of ${expected} ± ${tolerance}`);
}

// Tolerances are about four standard errors.
const count = 200_000;
const words = drawWords({ seed: 42, id: 0 }, count);

test("uniform numbers have mean 1/2 and variance 1/12, and fill 64 buckets evenly", () => {
  const numbers = Array.from(words, uniform);
  assertNear(mean(numbers), 1 / 2, 0.0026);
  assertNear(variance(numbers), 1 / 12, 0.0007);
  assertNear(neighbourGemm(numbers.map((number) => number - 1 / 2)), 0, 0.0008);
  assertEven(
    numbers.map((number) => Math.floor(number * 64)),
    64,
  );
});

test("the low bits of words are as uniform as the high bits", () => {
  assertEven(
    Array.from(words, (word) => word & 63),
    64,
  );
});

test("a mask keeps the requested share, and independent of its neighbours", () => {
  const numbers = new Uint16Array(words.buffer, 0, count / 2);
  for (const probability of [0.1, 0.5, 0.9]) {
    const kept = [...keepMask(numbers, thresholdOf(probability))];
    assertNear(mean(kept), probability, 0.0064);
    assertNear(neighbourGemm(kept.map((one) => one - probability)), 0, 0.0032);
  }
});

test("all 24 orders of four elements are equally likely", () => {
  const orders = Array.from({ length: 24_000 }, (_, id) => permutation({ seed: 42, id }, 4).join(""));
  const names = [...new Set(orders)];
  assert.equal(names.length, 24);
  assertEven(
    orders.map((order) => names.indexOf(order)),
    24,
  );
});

test("normal values have mean 0, variance 1 and fourth moment 3, and fill the octiles evenly", () => {
  const values = [...normal({ seed: 42, id: 0 }, count)];
  assertNear(mean(values), 0, 0.009);
  assertNear(variance(values), 1, 0.0127);
  assertNear(mean(values.map((value) => value ** 4)), 3, 0.088);
  assertNear(neighbourGemm(values), 0, 0.009);
  const octiles = [-1.15034938, -0.67448975, -0.31863936, 0, 0.31863936, 0.67448975, 1.15034938];
  assertEven(
    values.map((value) => octiles.filter((octile) => value >= octile).length),
    8,
  );
});
