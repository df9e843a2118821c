/**
 * A training step whose GEMMs are native kernels. Compiled, with the weight gradients of several layers in
 * one grouped launch, it and every replay have the eager step's bits.
 */

import assert from "node:assert/strict";
import { afterEach, describe, test } from "node:test";
import { type Device, manualSeed, nn, optim, randn, type Tensor } from "holdfast";
import { latestPlanOf } from "../src/tensor/compiled/compiled-step.js";
import { emulatorMissing, openEmulator } from "./support/emulator.js";
import { openEmulatorGpu } from "./support/emulator-gpu.js";

const skip = emulatorMissing;

const openGpu = (): Device => openEmulatorGpu({ multiprocessors: 1 });

afterEach(() => {
  if (!skip) openEmulator().reset();
});

/** Three steps of a model with a residual and a narrow head, each with its own weight gradient; its losses. */
function train(device: Device, prepare: (step: (x: Tensor) => Tensor) => (x: Tensor) => Tensor): number[] {
  manualSeed(3);
  const [up, down, head] = [new nn.Linear(32, 64), new nn.Linear(64, 32), new nn.Linear(32, 3)].map((layer) =>
    layer.to(device),
  );
  const optimizer = new optim.AdamW(
    [up!, down!, head!].flatMap((layer) => [...layer.parameters()]),
    { lr: 0.01 },
  );
  const step = prepare((x) => {
    const hidden = down!.forward(up!.forward(x).gelu()).add(x);
    const loss = head!.forward(hidden).square().mean();
    loss.backward();
    optimizer.step();
    optimizer.zeroGrad();
    return loss;
  });
  const x = randn([48, 32], { device });
  return [0, 1, 2].map(() => step(x).item());
}

describe("a compiled step of DMMA GEMMs", { skip }, () => {
  const device = skip ? undefined! : openGpu();

  const compile = (passes: { readonly groupGemms?: boolean; readonly renameBuffers?: boolean } = {}) => {
    const compiled: { step?: ReturnType<typeof device.compile<[Tensor], Tensor>> } = {};
    const losses = train(device, (step) => {
      compiled.step = device.compile(step, { passes });
      return compiled.step;
    });
    const step = compiled.step!;
    const calls = latestPlanOf(step)!.planned.schedule.calls.map(({ call }) => call);
    return { losses, calls, explanation: step.explain() };
  };

  const grouped = skip ? undefined! : compile();

  test("has the eager losses to the bit, with and without grouped GEMMs", () => {
    const eager = train(device, (step) => step);
    const { losses, calls } = grouped;
    assert.deepEqual(losses, eager);
    const groups = calls.flatMap(({ work }) => (work.kind === "grouped-gemm" ? [work.problems.length] : []));
    assert.deepEqual(groups, [2], "the weight gradients of both wide layers");
    const separate = compile({ groupGemms: false, renameBuffers: false });
    assert.deepEqual(separate.losses, eager);
    assert.ok(separate.calls.every(({ work }) => work.kind !== "grouped-gemm"));
  });

  test("shows the grouped launch in its explanation", () => {
    assert.match(grouped.explanation, / \d+ → +\d+ +groupGemms, on a GPU, small GEMMs are one launch/m);
    assert.match(grouped.explanation, /2 × gemm TN f32/);
  });
});
