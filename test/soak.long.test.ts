/**
 * A long run: 200,000 steps on the CPU, 2,000,000 on a GPU (TEST_DEVICE=cuda), with a run folder, every
 * record and checkpoints, like the command. Every loss is right, every step is in the log, and nothing grows.
 */

import assert from "node:assert/strict";
import { join } from "node:path";
import { test } from "node:test";
import { inspectionFiles, readSteps } from "../src/train/index.js";
import { KiB, MiB } from "../src/units/index.js";
import { makeFolder } from "./support/folders.js";
import { soakRun, soakStepsPerEpoch } from "./support/soak-run.js";
import { testDevice } from "./support/test-device.js";

const steps = testDevice === "cuda" ? 2_000_000 : 200_000;
const skip = testDevice === "emulator" && "hours of training on an emulator";
const folder = makeFolder();

test(`${steps.toLocaleString("en")} steps with records and checkpoints: every loss is in the log, and memory does not grow`, {
  skip,
}, async (t) => {
  const out = join(folder, "run");
  const { epochs, samples } = await soakRun({ out, steps, lr: 1e-3 });
  requireEveryStep(out, steps, epochs);
  const [first, last] = [epochs[0], epochs.at(-1)];
  assert.ok(first && last && last.loss < first.loss / 4, `it did not learn: ${first?.loss} to ${last?.loss}`);

  // The first quarter is for code optimisation, for buffers that fill, and for the heap to reach its size.
  const after = samples.slice(Math.floor(samples.length / 4));
  assert.ok(after.length >= 6, "too few samples");
  for (const { used, committed, pins } of after)
    assert.deepEqual([used, committed, pins], [after[0]?.used, after[0]?.committed, after[0]?.pins]);
  const [begin, end] = [after[0]!, after.at(-1)!];
  const heapPerStep = (end.heapBytes - begin.heapBytes) / (end.step - begin.step);
  const residentGrowth = end.residentBytes - begin.residentBytes;
  t.diagnostic(
    `in ${end.step - begin.step} steps the heap grew by ${heapPerStep.toFixed(2)} bytes a step, resident memory by ${Math.round(residentGrowth / KiB)} KiB`,
  );
  // A number kept for each step would be 8 bytes. The data kept for each epoch is less than 1 byte a step.
  assert.ok(heapPerStep < 4, `the JS heap grew from ${begin.heapBytes} to ${end.heapBytes} bytes`);
  assert.ok(
    residentGrowth < 32 * MiB,
    `resident memory grew from ${begin.residentBytes} to ${end.residentBytes} bytes`,
  );
});

test("at a learning rate of 0 every epoch of a long run has the same losses, to the bit", {
  skip,
}, async () => {
  const out = join(folder, "still");
  const count = steps / 10;
  const { epochs } = await soakRun({ out, steps: count, lr: 0 });
  requireEveryStep(out, count, epochs);
  const { loss } = readSteps(join(out, inspectionFiles.steps));
  for (let step = soakStepsPerEpoch; step < loss.length; step++)
    assert.equal(loss[step], loss[step % soakStepsPerEpoch], `step ${step + 1}`);
});

/** A row for each step, in order, with its loss; and each epoch's loss is the mean of its rows. */
function requireEveryStep(out: string, count: number, epochs: readonly { readonly loss: number }[]): void {
  const { step, loss, epoch } = readSteps(join(out, inspectionFiles.steps));
  assert.equal(step.length, count);
  assert.equal(epochs.length, count / soakStepsPerEpoch);
  const totals = new Float64Array(epochs.length);
  for (let row = 0; row < count; row++) {
    if (
      step[row] !== row + 1 ||
      !Number.isFinite(loss[row]) ||
      epoch[row] !== Math.floor(row / soakStepsPerEpoch)
    )
      assert.fail(`row ${row}: step ${step[row]}, epoch ${epoch[row]}, loss ${loss[row]}`);
    totals[epoch[row]!]! += loss[row]!;
  }
  for (const [index, { loss: reported }] of epochs.entries()) {
    const mean = totals[index]! / soakStepsPerEpoch;
    assert.ok(
      Math.abs(reported - mean) <= 1e-9 * Math.abs(mean),
      `epoch ${index}: ${reported}, and its rows ${mean}`,
    );
  }
}
