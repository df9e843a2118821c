/** Which epochs count as divergence. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { divergenceOf } from "./divergence.js";

const healthy = { losses: [1, 0.9, 0.8, 0.7], skipped: 0, figures: {} };

test("an epoch of finite losses has not diverged", () => {
  assert.equal(divergenceOf(healthy), undefined);
  assert.equal(divergenceOf({ ...healthy, figures: { loss: 2, precision: Number.NaN } }), undefined);
});

test("up to half of the steps may be skipped, with the losses that they were skipped for", () => {
  const losses = [1, Number.NaN, 0.8, Number.POSITIVE_INFINITY];
  assert.equal(divergenceOf({ ...healthy, losses, skipped: 2 }), undefined);
  assert.equal(
    divergenceOf({ ...healthy, losses, skipped: 3 }),
    "3 of 4 steps were skipped, because a gradient was not finite",
  );
});

test("a loss that is not finite in a step that was not skipped has damaged the weights", () => {
  const losses = [1, 0.9, Number.NaN, Number.NaN];
  assert.equal(divergenceOf({ ...healthy, losses, skipped: 1 }), "the loss was not finite in 2 of 4 steps");
});

test("an evaluation loss that is not finite is divergence", () => {
  assert.equal(divergenceOf({ ...healthy, figures: { loss: Number.NaN } }), "the evaluation's loss is NaN");
});
