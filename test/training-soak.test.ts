/** Thousands of training steps: nothing grows, and no memory is requested from the driver after the second. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { setFlagsFromString } from "node:v8";
import { DataLoader, manualSeed, nn, optim, TensorDataset } from "holdfast";
import type { DriverCall } from "holdfast/internals";
import { interceptCalls } from "../src/driver/index.js";
import { KiB } from "../src/units/index.js";
import { openDevice } from "./support/devices.js";
import { effort } from "./support/effort.js";
import { heapAfterCollection } from "./support/gc.js";
import { openTestDriver } from "./support/test-device.js";

// V8 keeps optimized code for thousands of steps. Without it, the heap stops growing after a few hundred.
setFlagsFromString("--no-opt");

const steps = effort({ quick: 400, thorough: 5000 });
/** The driver's calls that allocate memory, or create objects that need some. */
const takingCalls: ReadonlySet<DriverCall> = new Set([
  "reserve",
  "commit",
  "allocateHost",
  "createStream",
  "createEvent",
  "loadKernel",
]);

test(`${steps} steps of training keep memory constant after the second, and learn`, (context) => {
  const calls: string[] = [];
  const driver = openTestDriver();
  const counting = interceptCalls(driver, (call, _, proceed) => {
    if (takingCalls.has(call)) calls.push(call);
    return proceed();
  });
  const device = openDevice({ driver: counting, memory: "64MiB" });
  manualSeed(11);
  const rows = 96;
  const points = Array.from({ length: rows }, (_, i) => [
    Math.sin(i * 1.3),
    Math.cos(i * 0.7),
    Math.sin(i * 2.9),
  ]);
  const labels = Int32Array.from(points, ([a = 0, b = 0, c = 0]) => (a * b > c ? 0 : a > 0 ? 1 : 2));
  const batches = new DataLoader(new TensorDataset(points, labels), { batchSize: 24, shuffle: true, device });
  const model = new nn.Sequential(
    new nn.Linear(3, 24),
    new nn.LayerNorm(24),
    new nn.GELU(),
    new nn.Dropout(0.05),
    new nn.Linear(24, 3),
  ).to(device);
  const optimizer = new optim.AdamW(model.parameters(), { lr: 3e-3 });
  const schedule = new optim.CosineSchedule(optimizer, { tMax: steps, etaMin: 1e-5 });
  const losses: number[] = [];
  let epoch = batches[Symbol.iterator]();

  function trainStep(): void {
    let next = epoch.next();
    if (next.done) {
      epoch = batches[Symbol.iterator]();
      next = epoch.next();
    }
    const [x, y] = next.value;
    device.step(() => {
      const loss = nn.functional.crossEntropy(model.forward(x), y);
      loss.backward();
      optim.clipGradNorm(model.parameters(), 1);
      optimizer.step();
      optimizer.zeroGrad();
      losses.push(loss.item());
    });
    schedule.step();
  }

  trainStep();
  trainStep();
  const { arena } = device.runtime;
  const after = {
    committed: arena.figures.committed,
    used: device.runtime.budget.used,
    pins: arena.figures.pins,
  };
  const [takenBefore, liveBefore] = [calls.length, arena.figures.live];
  // V8 keeps what it learns of types in the first steps, so an early stretch may grow; a leak grows in every stretch.
  const stretch = effort({ quick: 100, thorough: 500 });
  const flat = (stretch / 500) * 48 * KiB;
  const growths: number[] = [];
  let heap = heapAfterCollection();
  for (
    let step = 2;
    step < steps || (step < Math.max(6000, 3 * steps) && Math.min(...growths) >= flat);
    step++
  ) {
    trainStep();
    if ((step + 1) % stretch > 0) continue;
    const now = heapAfterCollection();
    growths.push(now - heap);
    heap = now;
  }

  context.diagnostic(`the heap grew by ${growths.join(", ")} bytes`);

  assert.deepEqual(calls.slice(takenBefore), []);
  const { committed, pins, live } = arena.figures;
  assert.deepEqual({ committed, used: device.runtime.budget.used, pins }, after);
  assert.equal(live, liveBefore);
  assert.equal(device.tape.openNodes, 0);
  assert.ok(
    Math.min(...growths) < flat,
    `the JS heap grew in every ${stretch} steps: by ${growths.join(", ")} bytes`,
  );
  const meanOf = (values: readonly number[]): number =>
    values.reduce((sum, loss) => sum + loss) / values.length;
  assert.ok(meanOf(losses.slice(-50)) < meanOf(losses.slice(0, 50)) / 4, "it did not learn");
});
