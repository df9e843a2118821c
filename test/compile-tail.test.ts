/**
 * The end of a training step: gradients are computed in their destinations, their norm is one launch and its
 * end one more, which also has the optimizer's step count. The bits are those of the eager step.
 */

import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { crossasset, type Device, manualSeed, nn, optim, randn, type Tensor, tensor } from "holdfast";
import { effort } from "./support/effort.js";
import { emulatorMissing } from "./support/emulator.js";
import { openEmulatorGpu } from "./support/emulator-gpu.js";

const skip = emulatorMissing;
const [batch, sources, features] = [6, 3, 10] as const;
// A capture would run each new step twice more.
const capture = effort({ quick: "off", thorough: "on" } as const);

const openGpu = (precision: "f32" | "tf32"): Device => openEmulatorGpu({ precision, capture });

/** Two steps from the same start: the losses, the weights after them, and the step's explanation. */
function train(
  device: Device,
  mode: "eager" | "compiled",
  passes: { readonly autotune?: boolean; readonly comboKernels?: boolean } = {},
) {
  manualSeed(5);
  const sizes = { sources, features, width: 16, heads: 2, layers: 1 };
  const model = new crossasset.CrossAsset(sizes).to(device);
  const parameters = model.parameters();
  const groups = [{ params: parameters.slice(0, 4), weightDecay: 0 }, { params: parameters.slice(4) }];
  const optimizer = new optim.AdamW(groups, { lr: 0.01 });
  const x = randn([batch, sources, features], { device });
  const y = tensor(
    Int32Array.from({ length: batch * sources }, (_, index) => index % 3),
    { device },
  );
  const body = (x: Tensor, y: Tensor) => {
    const loss = nn.functional.crossEntropy(model.forward(x).reshape([-1, 3]), y);
    loss.backward();
    optim.clipGradNorm(parameters, 0.5, { errorIfNonfinite: false });
    optimizer.step();
    optimizer.zeroGrad();
    return loss;
  };
  const compiled = device.compile(body, { passes });
  const step = mode === "compiled" ? compiled : (x: Tensor, y: Tensor) => body(x, y);
  const losses = [0, 1].map(() => device.step(() => step(x, y).item()));
  const weights = parameters.map((parameter) => [...parameter.dataSync()].join());
  const text = mode === "compiled" ? compiled.explain() : "";
  compiled.close();
  return { losses, weights, explanation: text };
}

const callsOf = (text: string): string[] => text.split("\n").filter((line) => /^ +\d+ {2}/.test(line));
const copiesIn = (calls: readonly string[]): number => calls.filter((line) => / copies /.test(line)).length;

function requireTail(kernels: readonly string[], expected: readonly string[]): void {
  const tail = kernels.slice(kernels.findIndex((line) => line.includes("gradientNorm of chunks")));
  assert.equal(tail.length, expected.length, tail.join("\n"));
  for (const [index, name] of expected.entries()) assert.ok(tail[index]?.includes(name), tail[index]);
}

describe("a compiled training step on a GPU", { skip }, () => {
  for (const precision of effort({ quick: ["tf32"] as const, thorough: ["f32", "tf32"] as const })) {
    test(`ends in few calls, with the eager step's bits: ${precision}`, () => {
      const device = openGpu(precision);
      const [eager, compiled] = [train(device, "eager"), train(device, "compiled")];
      assert.deepEqual(compiled.losses, eager.losses);
      assert.deepEqual(compiled.weights, eager.weights);
      const kernels = callsOf(compiled.explanation);
      const norm = ["gradientNorm of chunks", "gradientNorm + AdamW step"];
      requireTail(kernels, [...norm, "mul", "2 × AdamW"]);
      const separate = train(device, "compiled", { comboKernels: false });
      requireTail(callsOf(separate.explanation), [...norm, "mul", "AdamW", "AdamW", "ring + count of calls"]);
      assert.deepEqual(separate.weights, eager.weights);
      // A library computes this GEMM; if its default algorithm is kept, it gets the same layout as in eager
      // code.
      assert.equal(copiesIn(kernels), precision === "f32" ? 1 : 0);
      const kept = train(device, "compiled", { autotune: false });
      assert.equal(copiesIn(callsOf(kept.explanation)), 1);
      assert.deepEqual(kept.weights, eager.weights);
    });
  }
});
