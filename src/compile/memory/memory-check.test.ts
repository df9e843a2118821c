/** A plan that exceeds the available memory is rejected, with its holders and a batch that fits. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { rejectionOf } from "../../../test/support/rejections.js";
import { withRuntime } from "../../../test/support/runtimes.js";
import { HoldfastError } from "../../errors/index.js";
import { bytes, KiB, MiB } from "../../units/index.js";
import { type MemoryRequest, requireAvailable } from "./memory-check.js";
import type { MemoryReport } from "./memory-report.js";

function reportOf(peak: number): MemoryReport {
  const holders = ["softmax", "linear", "gelu", "layerNorm", "add", "mul", "dropout"].map((label, index) => ({
    label,
    bytes: MiB * (10 - index),
    count: index + 1,
  }));
  return { peak, lowerBound: peak, at: 7, op: "softmaxGradient", holders, persistent: [] };
}

const request: MemoryRequest = {
  name: "train",
  inputs: "f32 [64, 8], i32 [64]",
  shapes: [[64, 8], [64], []],
  otherPlans: 0,
};

/** The rejection of a plan that needs `times` the available memory. */
function rejected(times: number, change: Partial<MemoryRequest> = {}): HoldfastError {
  return withRuntime({ memory: "256MiB" }, ({ runtime }) => {
    const peak = bytes(runtime.budget.left * times);
    const error = rejectionOf(() => requireAvailable(runtime, reportOf(peak), { ...request, ...change }));
    assert.ok(error instanceof HoldfastError);
    return error;
  });
}

test("a plan may use the rest of the budget and the free memory of the arena, and not one byte more", () => {
  withRuntime({ memory: "256MiB" }, ({ runtime }) => {
    const { budget, arena } = runtime;
    runtime.step(() => void arena.allocate(3 * MiB, "earlier"));
    const kept = arena.allocate(64 * KiB, "kept");
    const { committed } = arena.figures;
    assert.ok(committed > 64 * KiB);
    const available = budget.left + committed - 64 * KiB;
    requireAvailable(runtime, reportOf(available), request);
    const error = rejectionOf(() => requireAvailable(runtime, reportOf(available + 1), request));
    assert.equal(error?.code, "OUT_OF_BUDGET");
    assert.equal(error?.numbers["available"], available);
    arena.free(kept);
    requireAvailable(runtime, reportOf(available + 64 * KiB), request);
  });
});

test("the rejection has the peak, the table of the budget, the op at the peak and the largest holders", () => {
  const { message } = rejected(2);
  assert.match(
    message,
    /^Compiled train needs .* for inputs f32 \[64, 8\], i32 \[64\], but only .* is available\./,
  );
  assert.match(message, /^ {2}limit +256 MiB /m);
  assert.match(message, /^ {2}free in the arena +\S+ \w+$/m);
  assert.match(
    message,
    /live at call 7, softmaxGradient:\n {2}· softmax 10 MiB in 1\n {2}· linear 9 MiB in 2\n/,
  );
  assert.match(message, /^ {2}· 2 others 9 MiB$/m);
  assert.match(message, /raise HOLDFAST_MEMORY/);
});

test("the suggested batch follows from the first axis that all inputs share", () => {
  const error = rejected(2);
  assert.match(error.message, /a batch of about 32 instead of 64 should fit/);
  assert.equal(error.numbers["fitting"], 32);
  for (const shapes of [[], [[]], [[64], [32]]]) {
    const other = rejected(2, { shapes });
    assert.match(other.message, /use a smaller batch/);
    assert.equal(other.numbers["batch"], undefined);
  }
  assert.match(rejected(100).message, /use a smaller batch/);
});

test("the rejection has the memory of other plans of the step, if there are any", () => {
  assert.doesNotMatch(rejected(2).message, /other plans/);
  assert.match(rejected(2, { otherPlans: 5 * MiB }).message, /other plans hold 5 MiB/);
});
