/**
 * Hundreds of compiled steps of a GPT with changing batches: nothing grows, and the driver is asked for no memory once the step has settled.
 * `npm run bench:gpu -- --only soak` does the same with 10,000 steps on a GPU.
 */

import assert from "node:assert/strict";
import { test } from "node:test";
import { setFlagsFromString } from "node:v8";
import type { DriverCall } from "holdfast/internals";
import { interceptCalls } from "../src/driver/index.js";
import { KiB } from "../src/units/index.js";
import { openDevice } from "./support/devices.js";
import { effort } from "./support/effort.js";
import { heapAfterCollection } from "./support/gc.js";
import { GptTraining } from "./support/gpt-training.js";
import { openTestDriver, testDevice } from "./support/test-device.js";

// V8 keeps optimized code for thousands of steps. Without it, the heap stops growing after a few hundred.
setFlagsFromString("--no-opt");

/** The first calls time ways to run the step, on a GPU. */
const settled = 40;
const [stretches, stretch] = effort({ quick: [3, 80], thorough: [10, 1000] });
/** In a long run, less than a number for each step; in a short one, less than a record of each step, because compiled code takes memory too. */
const flat = effort({ quick: 64 * KiB, thorough: 16 * stretch });
const takingCalls: ReadonlySet<DriverCall> = new Set([
  ...(["reserve", "commit", "allocateHost", "createStream", "createEvent", "loadKernel"] as const),
  ...(["beginCapture", "instantiate"] as const),
]);

test(`${settled + stretches * stretch} compiled steps of a GPT keep memory constant, and learn`, {
  skip: testDevice === "emulator" && "hundreds of steps on an emulator",
}, (context) => {
  const calls: string[] = [];
  const counting = interceptCalls(openTestDriver(), (call, _, proceed) => {
    if (takingCalls.has(call)) calls.push(call);
    return proceed();
  });
  const device = openDevice({ driver: counting, memory: "64MiB" });
  const training = new GptTraining(device, { batch: 4 });
  const figures = () => {
    const { committed, pins, live } = device.runtime.arena.figures;
    return { committed, pins, live, used: device.runtime.budget.used };
  };
  const firstLoss = training.step(true);
  for (let step = 1; step < settled; step++) training.step(false);
  device.synchronize();
  const [before, taken] = [figures(), calls.length];
  let heap = heapAfterCollection();
  const growths = Array.from({ length: stretches }, () => {
    for (let step = 0; step < stretch; step++) training.step(step % 10 === 0);
    device.synchronize();
    assert.deepEqual(figures(), before);
    const now = heapAfterCollection();
    const growth = now - heap;
    heap = now;
    return growth;
  });
  context.diagnostic(`the heap grew by ${growths.join(", ")} bytes`);
  assert.deepEqual(calls.slice(taken), []);
  assert.ok(Math.min(...growths) < flat, `the JS heap grew in every stretch: by ${growths.join(", ")} bytes`);
  const lastLoss = training.step(true);
  assert.ok(lastLoss < firstLoss / 2, `it did not learn: ${firstLoss} to ${lastLoss}`);
  training.close();
});
