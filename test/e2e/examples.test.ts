/** The examples learn: each runs as a reader would run it, and is checked on rows that it has not seen. */

import assert from "node:assert/strict";
import { test } from "node:test";
import * as characters from "../../examples/characters.js";
import * as digits from "../../examples/digits.js";
import * as linearRegression from "../../examples/linear-regression.js";
import * as spirals from "../../examples/spirals.js";
import { effort } from "../support/effort.js";

test("linear regression finds the plane of the random points", async () => {
  const { weights, heldOutError } = await linearRegression.main(() => {});
  for (const [index, truth] of [2, -3, 0.5].entries()) {
    assert.ok(
      Math.abs((weights[index] ?? Number.NaN) - truth) < 0.05,
      `weight ${index} is ${weights[index]}`,
    );
  }
  // The noise has a variance of 0.01, which no model can predict.
  assert.ok(heldOutError < 0.015, `held-out error ${heldOutError}`);
});

test("the network separates two spirals at points between its training points", async () => {
  const { heldOutAccuracy } = await spirals.main(() => {});
  assert.ok(heldOutAccuracy >= 0.95, `accuracy ${heldOutAccuracy}`);
});

test("the convolutional network reads digits that it has not seen", async () => {
  const { heldOutAccuracy } = await digits.main(() => {});
  assert.ok(heldOutAccuracy >= 0.9, `accuracy ${heldOutAccuracy}`);
});

test("the transformer predicts the next letter of sentences that it has not seen", async () => {
  const { steps, accuracy } = effort({
    quick: { steps: 60, accuracy: 0.3 },
    thorough: { steps: 250, accuracy: 0.7 },
  });
  const { heldOutAccuracy, baseline, sample } = await characters.main(() => {}, { steps });
  const figures = `accuracy ${heldOutAccuracy}, most common letter ${baseline}`;
  assert.ok(heldOutAccuracy >= accuracy && heldOutAccuracy > 1.5 * baseline, figures);
  assert.match(sample, /^[a-z. ]+$/);
});
