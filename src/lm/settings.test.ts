/** The settings of a training of a language model, the schedule of its learning rate, and the checks of saved states. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { rejects } from "../../test/support/rejects.js";
import { readSavedState } from "./saved-state.js";
import { defaultSettings, type JobSettings, lrShare, requireSettings } from "./settings.js";

test("the learning rate rises linearly, then falls along a cosine or a line, and is above 0 in the last step", () => {
  const share = (step: number, settings: Partial<JobSettings>): string =>
    lrShare(step, 10, { ...defaultSettings, warmup: 0.2, ...settings }).toFixed(4);
  const all = (settings: Partial<JobSettings>) =>
    Array.from({ length: 10 }, (_, step) => share(step, settings));
  assert.deepEqual(all({ schedule: "constant" }), ["0.5000", ...Array<string>(9).fill("1.0000")]);
  assert.deepEqual(all({ schedule: "linear" }).slice(1), [
    ...["1.0000", "1.0000", "0.8750", "0.7500", "0.6250", "0.5000", "0.3750", "0.2500", "0.1250"],
  ]);
  assert.deepEqual(all({ schedule: "cosine" }).slice(1), [
    "1.0000",
    ...[0, 1, 2, 3, 4, 5, 6, 7].map((at) => ((1 + Math.cos((Math.PI * at) / 8)) / 2).toFixed(4)),
  ]);
  assert.equal(lrShare(0, 10, { ...defaultSettings, warmup: 0 }), 1);
  assert.equal(lrShare(0, 1, { ...defaultSettings, warmup: 0.9 }), 1, "a single step");
});

test("invalid settings are rejected by name", () => {
  for (const [change, message] of [
    [{ epochs: 0 }, /epochs is 0.*1 or more/],
    [{ maxSteps: 0.5 }, /maxSteps is 0\.5/],
    [{ evalEvery: 0 }, /evalEvery is 0/],
    [{ lr: 0 }, /lr is 0\. It must be a number above 0/],
    [{ warmup: 1 }, /warmup is 1\. It must be a share from 0 to below 1/],
    [{ schedule: "square" as "cosine" }, /schedule is square\. It must be cosine, linear, constant/],
    [{ weightDecay: -1 }, /weightDecay is -1/],
    [{ clip: 0 }, /clip is 0.*Infinity for no clipping/],
    [{ seed: -1 }, /seed is -1/],
    [{ learningRate: 1 } as Partial<JobSettings>, /unknown option learningRate/],
  ] as const)
    rejects("BAD_ARGUMENT", () => requireSettings({ ...defaultSettings, ...change }), message);
  requireSettings({ ...defaultSettings, clip: Number.POSITIVE_INFINITY, maxSteps: 3, evalEvery: 2 });
});

test("a checkpoint's state is rejected if a field has another type or contradicts another field", () => {
  const position = { epoch: 1, batch: 1, step: 4, losses: [0.5] };
  const epochs = [{ epoch: 0, steps: 3, loss: 1, lr: 0.1, seconds: 1, skipped: 0, figures: {} }];
  const evaluations = [{ step: 3, loss: 1, perplexity: 2.7, tokens: 9 }];
  const saved = { position, epochs, evaluations, sampledStep: -1 };
  assert.deepEqual(readSavedState(saved, 4), saved);
  for (const [change, message] of [
    [{ position: { ...position, step: 3 } }, /position\.step is 3, but its step is 4/],
    [{ epochs: [] }, /it has records of 0 epochs, but position\.epoch is 1/],
    [{ evaluations: [{ ...evaluations[0], step: 5 }] }, /it has figures of step 5, but its step is 4/],
    [{ evaluations: [{ step: 1 }] }, /evaluations\[0\]\.loss is not a number/],
    [{ sampledStep: "none" }, /sampledStep is not a whole number, −1 or more/],
    [{ sampledStep: 9 }, /it has figures of step 9/],
    [{ logs: { "metrics.jsonl": -1 } }, /logs is not a record of sizes/],
  ] as const)
    rejects("BAD_STATE", () => readSavedState({ ...saved, ...change }, 4), message);
});
