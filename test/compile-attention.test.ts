/**
 * A training step with attention in two equal layers. Compiled, attention stores half floats where GEMMs read
 * them, and the layers' copies are one launch. The bits are the eager step's, with these passes and without.
 */

import assert from "node:assert/strict";
import { afterEach, test } from "node:test";
import { crossasset, Device, manualSeed, nn, optim, randn, type Tensor } from "holdfast";
import { latestPlanOf } from "../src/tensor/compiled/compiled-step.js";
import { effort } from "./support/effort.js";
import { emulatorMissing, openEmulator } from "./support/emulator.js";
import { openEmulatorGpu } from "./support/emulator-gpu.js";
import { type Precision, withNullGpu } from "./support/null-gpu.js";
import { testEnvironment } from "./support/test-device.js";

const skip = emulatorMissing;

const openGpu = (precision: Precision): Device =>
  openEmulatorGpu({
    precision,
    multiprocessors: 1,
    // A capture would run each new step twice more.
    capture: effort({ quick: "off", thorough: "on" }),
  });

afterEach(() => {
  if (!skip) openEmulator().reset();
});

type Passes = {
  readonly attentionCasts?: boolean;
  readonly batchCopies?: boolean;
  readonly comboKernels?: boolean;
};

/** Some steps: the losses, all weights after them, and the calls of the compiled step. */
function train(device: Device, passes?: Passes, steps = 2) {
  manualSeed(11);
  const sizes = { sources: 3, features: 16, width: 32, heads: 2, layers: 2, hidden: 32 };
  const model = new crossasset.CrossAsset(sizes).to(device);
  const optimizer = new optim.AdamW(model.parameters(), { lr: 0.01 });
  const step = (x: Tensor): Tensor => {
    const loss = model.forward(x).square().mean();
    loss.backward();
    optimizer.step();
    optimizer.zeroGrad();
    return loss;
  };
  const compiled = passes && device.compile(step, { passes: { ...passes, autotune: false } });
  const x = randn([16, 3, 16], { device });
  const losses = Array.from({ length: steps }, () => (compiled ?? step)(x).item());
  const weights = model.parameters().flatMap((parameter) => parameter.flatten().tolist() as number[]);
  const planned = compiled && latestPlanOf(compiled)?.planned.schedule.calls;
  return { losses, weights, calls: planned?.map(({ call }) => call) ?? [] };
}

const precisions = effort<readonly Precision[]>({
  quick: ["f32", "bf16"],
  thorough: ["f32", "tf32", "bf16"],
});
/** A quick run executes the steps in bf16 only, where both passes have work. */
const executed = effort<readonly Precision[]>({ quick: ["bf16"], thorough: precisions });

for (const precision of executed) {
  test(`a compiled step with attention in ${precision} has the eager step's bits, with these passes and without`, {
    skip,
  }, () => {
    const device = openGpu(precision);
    const eager = train(device);
    for (const passes of [{}, { attentionCasts: false, batchCopies: false }]) {
      const { losses, weights } = train(device, passes);
      assert.deepEqual(losses, eager.losses, JSON.stringify(passes));
      assert.equal(
        weights.findIndex((weight, index) => weight !== eager.weights[index]),
        -1,
      );
    }
  });
}

for (const precision of precisions) {
  test(`a compiled step with attention in ${precision} has no conversion and no more than one copy around attention for both layers`, {
    skip,
  }, () => {
    // Copies inside combo kernels would be hard to count.
    const { calls } = withNullGpu(precision, (planning) => train(planning, { comboKernels: false }, 1), {
      multiprocessors: 1,
    });
    const attention = calls.flatMap(({ work }) => (work.kind === "attention" ? [work] : []));
    assert.deepEqual(
      attention.map(({ direction }) => direction),
      [...["forward", "forward", "backward", "backward"]],
    );
    const stored = precision === "bf16" ? "bf16" : "f32";
    assert.ok(attention.every(({ shape }) => shape.resultDtype === stored));
    const moves = (op: string) =>
      calls.filter((call) => call.work.kind === "row" && call.op.startsWith(op)).length;
    assert.equal(moves("concatWeights"), 1);
    // Native kernels write the weights' gradients to their destinations; a library computes one wide
    // matrix.
    assert.equal(moves("weightGradients"), precision === "f32" ? 0 : 1);
  });
}

test("the gradients of weights that share an input are right, as a batch and from one wide GEMM", {
  skip,
}, () => {
  const gradientsOn = (device: Device): number[] => {
    manualSeed(5);
    const weights = [0, 1, 2].map(() => randn([32, 32], { device, requiresGrad: true }));
    const [x, factor] = [randn([48, 32], { device }), randn([48, 3, 32], { device })];
    return device.step(() => {
      nn.functional.fusedProjections(x, weights).mul(factor).sum().backward();
      return weights.flatMap((weight) => weight.grad!.flatten().tolist() as number[]);
    });
  };
  const cpu = new Device("cpu", {
    memory: "64MiB",
    threads: 1,
    stallAfter: "off",
    environment: testEnvironment,
    print: () => {},
  });
  try {
    const expected = gradientsOn(cpu);
    for (const precision of ["f32", "tf32"] as const) {
      const gradients = gradientsOn(openGpu(precision));
      assert.equal(gradients.length, expected.length);
      const worst = Math.max(...gradients.map((value, index) => Math.abs(value - expected[index]!)));
      assert.ok(worst < (precision === "f32" ? 1e-4 : 0.1), `${precision}: ${worst}`);
    }
  } finally {
    cpu.close();
  }
});
