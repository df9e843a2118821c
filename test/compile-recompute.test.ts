/**
 * Activations that a GPU computes again in backward: the step has the bits of the step that keeps them, needs less memory, and computes
 * them in the kernel of their gradient.
 */

import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { type Device, manualSeed, nn, randn, type Tensor } from "holdfast";
import type { PassSettings } from "../src/compile/index.js";
import type { Call } from "../src/compile/program/program.js";
import { latestPlanOf } from "../src/tensor/compiled/compiled-step.js";
import { emulatorMissing } from "./support/emulator.js";
import { openEmulatorGpu } from "./support/emulator-gpu.js";
import { type Precision, withNullGpu } from "./support/null-gpu.js";
import { rejectionBy } from "./support/proposed-steps.js";
import { sameBytes } from "./support/same-bytes.js";

/** With one multiprocessor, an activation of 64 × 512 floats is worth recomputing. */
const sizes = { rows: 64, width: 16, hidden: 512, blocks: 4 } as const;

class Block extends nn.Module {
  readonly up: nn.Linear;
  readonly down: nn.Linear;

  constructor({ width, hidden }: typeof sizes) {
    super();
    this.up = new nn.Linear(width, hidden);
    this.down = new nn.Linear(hidden, width);
  }

  forward(x: Tensor): Tensor {
    return x.add(this.down.forward(this.up.forward(x).gelu("tanh"))); // [rows, width]
  }
}

function trained(device: Device, passes: PassSettings) {
  manualSeed(3);
  const blocks = Array.from({ length: sizes.blocks }, () => new Block(sizes));
  const model = new nn.Sequential(...blocks).to(device);
  const x = randn([sizes.rows, sizes.width], { device });
  const step = device.compile(
    (input: Tensor) => {
      const loss = model.forward(input).square().mean();
      loss.backward();
      return loss;
    },
    { passes },
  );
  const loss = step(x).item();
  const planned = latestPlanOf(step)!.planned;
  const gradients = model.parameters().map(({ grad }) => grad!.dataSync() as Float32Array);
  step.close();
  return { loss, gradients, planned, calls: planned.schedule.calls.map(({ call }) => call) };
}

const isRecomputed = ({ op }: Call): boolean => /gelu.* \+ .*geluTanhGradient/.test(op);

describe("a compiled step on a GPU", { skip: emulatorMissing }, () => {
  test("computes activations again in the kernel of their gradient, to the same bits, with less memory", () => {
    const device = openEmulatorGpu({ multiprocessors: 1, capture: "off" });
    const [kept, recomputed] = [trained(device, { recomputeActivations: false }), trained(device, {})];
    assert.deepEqual(
      [kept, recomputed].map(({ calls }) => calls.filter(isRecomputed).length),
      // The last activation is read soon after the memory peak.
      [0, sizes.blocks - 1],
    );
    assert.equal(recomputed.calls.length, kept.calls.length);
    const activationBytes = 4 * sizes.rows * sizes.hidden;
    const saved = kept.planned.plan.bytes - recomputed.planned.plan.bytes;
    assert.ok(saved >= (sizes.blocks - 2) * activationBytes, `${saved} bytes`);
    assert.equal(recomputed.loss, kept.loss);
    for (const [index, values] of kept.gradients.entries())
      sameBytes(recomputed.gradients[index]!, values, `gradient ${index}`);
  });
});

describe("a plan for a GPU", () => {
  const planned = (precision: Precision, passes: PassSettings) =>
    withNullGpu(precision, (device) => trained(device, passes), { multiprocessors: 1 });

  test("keeps activations with `rematerialize: false`, and those that a GEMM's epilogue computes", () => {
    const calls = [
      ...planned("f32", { rematerialize: false }).calls,
      ...planned("bf16", { gemmAlgorithms: false }).calls,
    ];
    assert.deepEqual(calls.filter(isRecomputed), []);
  });

  test("is rejected if a weight gradient runs before the kernel that computes its activation again", () => {
    const { planned: step, calls } = planned("f32", {});
    const { schedule, plan } = step;
    assert.equal(rejectionBy({ program: calls, schedule, plan }), undefined);
    const at = calls.findIndex(isRecomputed);
    const swapped = schedule.calls.with(at, schedule.calls[at + 1]!).with(at + 1, schedule.calls[at]!);
    assert.match(String(rejectionBy({ program: calls, schedule: { calls: swapped }, plan })), /order/);
  });
});
