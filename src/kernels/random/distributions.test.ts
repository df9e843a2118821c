/** Distributions from random words: exact limits and frozen bits. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { rejects } from "../../../test/support/rejects.js";
import { keepAll, keepMask, scaleOfKept, thresholdOf, uniform } from "./distributions.js";
import { drawWords } from "./random-stream.js";

const words = drawWords({ seed: 42, id: 0 }, 10_000);
const largestWord = 2 ** 32 - 1;
const largestNumber = 2 ** 16 - 1;

test("uniform is exact in float32 and in [0, 1)", () => {
  assert.equal(uniform(0), 0);
  assert.equal(uniform(255), 0);
  assert.equal(uniform(256), 2 ** -24);
  assert.equal(uniform(2 ** 31), 0.5);
  assert.equal(uniform(largestWord), 1 - 2 ** -24);
  for (const word of words) assert.equal(uniform(word), Math.fround(uniform(word)));
});

test("a threshold is the probability in steps of 2⁻¹⁶, rounded to the nearest", () => {
  assert.equal(thresholdOf(0), 0);
  assert.equal(thresholdOf(2 ** -18), 0);
  assert.equal(thresholdOf(2 ** -17), 1);
  assert.equal(thresholdOf(0.5), 2 ** 15);
  assert.equal(thresholdOf(0.9), 58_982);
  assert.equal(thresholdOf(1 - 2 ** -16), largestNumber);
  assert.equal(thresholdOf(1 - 2 ** -18), keepAll);
  assert.equal(thresholdOf(1), keepAll);
});

test("the scale of kept elements is the inverse of the exact probability to keep one, so that the mean stays", () => {
  for (const p of [0, 2 ** -18, 0.1, 0.2, 1 / 3, 0.5, 0.999, 1 - 2 ** -17])
    assert.ok(Math.abs((scaleOfKept(p) * thresholdOf(1 - p)) / keepAll - 1) < 1e-15, `p = ${p}`);
  assert.equal(scaleOfKept(0.5), 2);
  assert.equal(scaleOfKept(1), 0);
  assert.equal(scaleOfKept(1 - 2 ** -18), 0, "none is kept");
});

test("a probability outside 0 to 1 is rejected", () => {
  for (const probability of [-0.1, 1.1, Number.NaN, Number.POSITIVE_INFINITY]) {
    rejects("BAD_ARGUMENT", () => thresholdOf(probability), /from 0 to 1/);
  }
});

test("the mask keeps numbers below the threshold: all for probability 1, none for 0", () => {
  const edges = Uint16Array.of(0, 2 ** 15 - 1, 2 ** 15, largestNumber);
  assert.deepEqual([...keepMask(edges, thresholdOf(0.5))], [1, 1, 0, 0]);
  assert.deepEqual([...keepMask(edges, thresholdOf(1))], [1, 1, 1, 1]);
  assert.deepEqual([...keepMask(edges, thresholdOf(0))], [0, 0, 0, 0]);
});

test("the mask of seed 42 is frozen", () => {
  assert.equal(
    keepMask(new Uint16Array(words.buffer, 0, 32), thresholdOf(0.75)).join(""),
    "11111111110111101101111011011011",
  );
});
