/** Distributions from random words: exact limits and frozen bits. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { rejects } from "../../../test/support/rejects.js";
import { keepAll, keepMask, thresholdOf, uniform } from "./distributions.js";
import { drawWords } from "./random-stream.js";

const words = drawWords({ seed: 42, id: 0 }, 10_000);
const largestWord = 2 ** 32 - 1;

test("uniform is exact in float32 and in [0, 1)", () => {
  assert.equal(uniform(0), 0);
  assert.equal(uniform(255), 0);
  assert.equal(uniform(256), 2 ** -24);
  assert.equal(uniform(2 ** 31), 0.5);
  assert.equal(uniform(largestWord), 1 - 2 ** -24);
  for (const word of words) assert.equal(uniform(word), Math.fround(uniform(word)));
});

test("a threshold is the probability in steps of 2⁻³², rounded to the nearest", () => {
  assert.equal(thresholdOf(0), 0);
  assert.equal(thresholdOf(2 ** -34), 0);
  assert.equal(thresholdOf(2 ** -33), 1);
  assert.equal(thresholdOf(0.5), 2 ** 31);
  assert.equal(thresholdOf(0.9), 3_865_470_566);
  assert.equal(thresholdOf(1 - 2 ** -32), largestWord);
  assert.equal(thresholdOf(1), keepAll);
});

test("a probability outside 0 to 1 is rejected", () => {
  for (const probability of [-0.1, 1.1, Number.NaN, Number.POSITIVE_INFINITY]) {
    rejects("BAD_ARGUMENT", () => thresholdOf(probability), /from 0 to 1/);
  }
});

test("the mask keeps words below the threshold: all for probability 1, none for 0", () => {
  const edges = Uint32Array.of(0, 2 ** 31 - 1, 2 ** 31, largestWord);
  assert.deepEqual([...keepMask(edges, thresholdOf(0.5))], [1, 1, 0, 0]);
  assert.deepEqual([...keepMask(edges, thresholdOf(1))], [1, 1, 1, 1]);
  assert.deepEqual([...keepMask(edges, thresholdOf(0))], [0, 0, 0, 0]);
});

test("the mask of seed 42 is frozen", () => {
  assert.equal(
    keepMask(words.subarray(0, 32), thresholdOf(0.75)).join(""),
    "11111110111011011011110111111111",
  );
});
