/** The constants that others are derived from. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { featureCount, historyBars, longestHorizon, sampleWidth, scales } from "./scales.js";

test("a sample has twelve scales of 193 features", () => {
  assert.deepEqual([scales.length, featureCount, sampleWidth], [12, 193, 2316]);
});

test("a sample looks back over 33 groups of the longest scale, and as far ahead as that scale", () => {
  assert.deepEqual([historyBars, longestHorizon], [7689, 233]);
});

test("every scale from the third on is the sum of the two before it", () => {
  for (const [index, scale] of scales.entries()) {
    if (index >= 2) assert.equal(scale, scales[index - 1]! + scales[index - 2]!);
  }
});
