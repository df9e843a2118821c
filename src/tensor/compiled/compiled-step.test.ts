/** Reports of a compiled step: explain(), memory(), and the rejection of a plan that exceeds the budget. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { openDevice, openStrictDevice, withDevice } from "../../../test/support/devices.js";
import { rejectionOf } from "../../../test/support/rejections.js";
import { tensor, zeros } from "../creation.js";
import type { Device } from "../device.js";
import type { Tensor } from "../tensor.js";

const device = openStrictDevice();

/** Attention of every row to every other; its memory grows with the batch. */
function attend(x: Tensor): Tensor {
  return x.matmul(x.t()).softmax(-1).matmul(x);
}

function usedOf({ runtime }: Device): {
  readonly live: number;
  readonly pins: number;
  readonly used: number;
} {
  const { live, pins } = runtime.arena.figures;
  return { live, pins, used: runtime.budget.used };
}

test("memory() reports the needs of a call before it allocates, and the call uses the same plan", () => {
  const step = device.compile(attend);
  const x = zeros([64, 16], { device });
  const before = device.runtime.arena.figures.live;
  const report = step.memory(x);
  assert.ok(report.peak >= 64 * 64 * 4);
  assert.ok(report.holders.some(({ label }) => label === "softmax" || label === "matmul"));
  assert.deepEqual(
    report.persistent.map(({ label }) => label),
    ["step inputs", "step results"],
  );
  assert.equal(device.runtime.arena.figures.live, before);
  assert.match(step.explain(), /^capture +not yet/m);
  step(x);
  assert.deepEqual([step.plans, device.runtime.arena.figures.live], [1, before + report.peak]);
  assert.equal(step.memory(x), report);
  assert.match(step.explain(), /^capture +one graph of \d+ nodes/m);
  step.close();
  assert.equal(device.runtime.arena.figures.live, before);
});

test("memory() changes no state: no gradient has arrived, and the next call is the first", () => {
  const w = tensor([2, 3], { device, requiresGrad: true });
  const accumulate = device.compile((x: Tensor) => void w.mul(x).sum().backward());
  const x = tensor([1, 10], { device });
  const read = () => w.grad?.tolist();
  accumulate.memory(x);
  assert.deepEqual(read(), undefined);
  accumulate(x);
  assert.deepEqual(read(), [1, 10]);
  assert.equal(accumulate.plans, 1);
  accumulate(x);
  assert.deepEqual([read(), accumulate.plans], [[2, 20], 2]);
});

test("closing a step that was only planned frees all its memory", () => {
  const x = zeros([8, 8], { device });
  const before = usedOf(device);
  const step = device.compile(attend);
  step.memory(x);
  step.close();
  assert.deepEqual(usedOf(device), before);
});

test("a plan over the budget is rejected before it allocates, and a smaller batch runs", () => {
  const small = openDevice({ memory: "64MiB", staging: "1MiB" });
  const step = small.compile(attend);
  const [wide, narrow] = [zeros([4096, 4], { device: small }), zeros([64, 4], { device: small })];
  const before = usedOf(small);
  const { peak } = step.memory(wide);
  const error = rejectionOf(() => step(wide));
  assert.equal(error?.code, "OUT_OF_BUDGET");
  assert.equal(error?.numbers["peak"], peak);
  assert.match(
    error?.message ?? "",
    /Compiled step needs .* f32 \[4096, 4\].* a batch of about \d+ instead of 4096/s,
  );
  assert.deepEqual([usedOf(small), step.plans], [before, 0]);
  assert.equal(step(narrow).sum().item(), 0);
  rejectionOf(() => step(wide));
  assert.equal(step.plans, 1);
});

test("explain() has a plan for each shape, and says why work runs directly if capture is off", () => {
  withDevice({ capture: "off" }, (direct) => {
    const step = direct.compile((x: Tensor) => x.exp().add(1).log(), { name: "softplus" });
    assert.match(step.explain(), /^Compiled softplus has no plan yet/);
    for (const size of [3, 5]) step(zeros([size], { device: direct }));
    const text = step.explain({ calls: false });
    assert.match(text, /^plan 1 +for inputs f32 \[3\]$[\s\S]*^plan 2 +for inputs f32 \[5\]$/m);
    assert.match(text, /^verticalFusion +3 → 1 /m);
    assert.match(text, /^capture +none, it runs call by call: HOLDFAST_CAPTURE is off$/m);
    assert.ok(step.explain().length > text.length);
  });
});

test("a step may be closed twice, and after its device", () => {
  const other = openDevice();
  const step = other.compile((x: Tensor) => ({ total: x.sum() }));
  assert.equal(step(tensor([1, 2], { device: other })).total.item(), 3);
  other.close();
  step.close();
  step.close();
});

test("a compiled step that another one calls becomes part of it, gradients included", () => {
  const w = tensor([2, 3], { device, requiresGrad: true });
  const square = device.compile((x: Tensor) => w.mul(x).square());
  const x = tensor([1, 2], { device });
  assert.deepEqual(square(x).tolist(), [4, 36]);
  const outer = device.compile((x: Tensor) => {
    square(x.mul(2)).sum().backward();
    const grad = w.grad!.clone();
    w.zeroGrad();
    return { grad, twice: square(square(x)) };
  });
  for (const factor of [1, 2, 3]) {
    const { grad, twice } = outer(x.mul(factor));
    // The gradient of (2xw)² by w is 8x²w.
    assert.deepEqual(grad.tolist(), [16 * factor ** 2, 96 * factor ** 2]);
    assert.deepEqual(twice.tolist(), [64 * factor ** 4, 11_664 * factor ** 4]);
  }
  assert.deepEqual([square.plans, outer.plans], [1, 1]);
  square.close();
  outer.close();
});
