/** The examples learn: each runs as a reader would run it, and is checked on rows that it has not seen. */

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import * as charGpt from "../../examples/char-gpt.js";
import * as characters from "../../examples/characters.js";
import * as digits from "../../examples/digits.js";
import * as linearRegression from "../../examples/linear-regression.js";
import * as spirals from "../../examples/spirals.js";
import { effort } from "../support/effort.js";

/** Neither the watchdog nor the threads change what an example learns; `npm run test:long` has both. */
const settings: Readonly<Record<string, string>> = effort({
  quick: { HOLDFAST_STALL_AFTER: "off", HOLDFAST_THREADS: "1" },
  thorough: {},
});
const environment = { ...process.env };
before(() => {
  Object.assign(process.env, settings);
});
after(() => {
  for (const variable of Object.keys(settings)) delete process.env[variable];
  Object.assign(process.env, environment);
});

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
  const { epochs, accuracy } = effort({
    quick: { epochs: 3, accuracy: 0.7 },
    thorough: { epochs: 6, accuracy: 0.9 },
  });
  const { heldOutAccuracy } = await digits.main(() => {}, { epochs });
  assert.ok(heldOutAccuracy >= accuracy, `accuracy ${heldOutAccuracy}`);
});

test("the transformer predicts the next letter of sentences that it has not seen", async () => {
  const { accuracy, ...amount } = effort({
    quick: { steps: 20, letters: 8, accuracy: 0.3 },
    thorough: { steps: 250, letters: 60, accuracy: 0.7 },
  });
  const { heldOutAccuracy, baseline, sample } = await characters.main(() => {}, amount);
  const figures = `accuracy ${heldOutAccuracy}, most common letter ${baseline}`;
  assert.ok(heldOutAccuracy >= accuracy && heldOutAccuracy > 1.5 * baseline, figures);
  assert.match(sample, /^[a-z. ]+$/);
});

test("the GPT predicts the next letter of a text that it has not seen", async () => {
  const { loss, ...amount } = effort({
    quick: { steps: 12, warmup: 2, evaluateEvery: 12, heldOutWindows: 16, letters: 4, loss: 3.4 },
    thorough: { loss: 2.2 },
  });
  const lines: string[] = [];
  const { firstLoss, heldOutLoss, sample } = await charGpt.main((line) => lines.push(line), {
    ...charGpt.small,
    ...amount,
  });
  // A guess among 77 letters has 4.34.
  assert.ok(firstLoss > 4 && heldOutLoss < loss, `loss ${firstLoss}, then ${heldOutLoss}`);
  assert.equal(sample.length, { ...charGpt.small, ...amount }.letters);
  assert.ok(lines.at(-1)?.endsWith(sample));
});
