/** GEMMs of compiled steps on a GPU: autotuned, the same captured and direct, close to eager ones. */

import assert from "node:assert/strict";
import { after, describe, test } from "node:test";
import { Device, manualSeed, nn, optim, randn, type Tensor } from "holdfast";
import { strict } from "holdfast/internals";
import { latestPlanOf } from "../src/tensor/compiled/compiled-step.js";
import { openEmulator } from "./support/emulator.js";
import { cudaMissing } from "./support/kernel-runtime.js";
import { openTestGpu, testDevice, testEnvironment } from "./support/test-device.js";

const skip = cudaMissing;
const skipOnGpu = testDevice === "cuda" ? "the size of a workspace is set on the emulator" : false;

function openGpu(capture: "on" | "off"): Device {
  const driver = openTestGpu();
  const device = new Device("cuda", {
    ...{
      driver: strict(driver),
      memory: "2GiB",
      poison: true,
      stallAfter: "off",
      environment: testEnvironment,
      capture,
    },
    // In float32, autotuning is off by default.
    precision: "tf32",
    print: () => {},
  });
  after(() => {
    device.close();
    driver.close();
  });
  return device;
}

/** Three steps of a small model; its losses. */
function train(device: Device, prepare: (step: (x: Tensor) => Tensor) => (x: Tensor) => Tensor): number[] {
  manualSeed(3);
  const model = new nn.Sequential(new nn.Linear(24, 40), new nn.GELU(), new nn.Linear(40, 24)).to(device);
  const optimizer = new optim.AdamW(model.parameters(), { lr: 0.01 });
  const step = prepare((x) => {
    const loss = model.forward(x).sub(x).square().mean();
    loss.backward();
    optimizer.step();
    optimizer.zeroGrad();
    return loss;
  });
  const x = randn([16, 24], { device });
  return [0, 1, 2].map(() => step(x).item());
}

describe("a compiled step's GEMMs", { skip }, () => {
  // Every algorithm then rounds differently, as in the real library.
  if (!skip && testDevice !== "cuda") openEmulator().set("gemmsDiffer", 1);
  const device = skip ? undefined! : openGpu("on");

  const compileOn = (on: Device, passes: { readonly autotune?: boolean } = {}) => {
    const compiled: { step?: object } = {};
    const losses = train(on, (step) => {
      const compiledStep = on.compile(step, { passes });
      compiled.step = compiledStep;
      return compiledStep;
    });
    return { losses, planned: latestPlanOf(compiled.step!)!.planned };
  };

  test("are autotuned before its memory is planned, once a process, and its losses are the eager ones", () => {
    const eager = train(device, (step) => step);
    const { losses, planned } = compileOn(device);
    for (const [index, loss] of losses.entries()) assert.ok(Math.abs(loss - eager[index]!) < 1e-4 * loss);
    const { gemms, measured, beforeUs, afterUs } = planned.gemms!;
    // Two in forward; two weight gradients and one activation gradient in backward.
    assert.equal(gemms, 5);
    assert.ok(measured > 0 && measured <= gemms);
    assert.ok(afterUs > 0 && afterUs <= beforeUs * 1.02);
    assert.equal(planned.stages.at(-1)?.name, "gemmAlgorithms");
    assert.equal(compileOn(device).planned.gemms?.measured, 0);
  });

  test("have the same bits if the step runs directly", () => {
    const direct = openGpu("off");
    assert.deepEqual(compileOn(direct).losses, compileOn(device).losses);
  });

  test("have the eager bits if the pass is off", () => {
    const { losses, planned } = compileOn(device, { autotune: false });
    assert.equal(planned.gemms, undefined);
    assert.deepEqual(
      losses,
      train(device, (step) => step),
    );
  });

  test("may leave another workspace in each run: the graph is kept", { skip: skipOnGpu }, () => {
    openEmulator().set("gemmWorkspace", 150_000);
    try {
      const { losses, planned } = compileOn(openGpu("on"));
      const scratches = planned.schedule.calls.flatMap(({ call: { work } }) =>
        work.kind === "gemm" ? [work.problem.scratch] : [],
      );
      assert.ok(scratches.every((scratch) => scratch && scratch.size >= 150_000));
      assert.ok(losses.every(Number.isFinite));
    } finally {
      openEmulator().set("gemmWorkspace", 0);
    }
  });
});
