/** A head with an odd number of classes: its logits and their gradient have padded rows in memory, and the gradients keep their bits. */

import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { type CompileOptions, type Device, manualSeed, nn, randn, tensor } from "holdfast";
import { latestPlanOf } from "../src/tensor/compiled/compiled-step.js";
import { emulatorMissing } from "./support/emulator.js";
import { openEmulatorGpu } from "./support/emulator-gpu.js";
import { sameBytes } from "./support/same-bytes.js";

const [rows, width, classes] = [2600, 64, 101] as const;

/** The gradients of a classifier's head, and the row strides of the head's logits and of their gradient. */
function run(device: Device, passes: NonNullable<CompileOptions["passes"]>) {
  manualSeed(3);
  const model = new nn.Sequential(new nn.LayerNorm([width]), new nn.Linear(width, classes)).to(device);
  const x = randn([rows, width], { device });
  const labels = Int32Array.from({ length: rows }, (_, index) => (index * index) % classes);
  const y = tensor(labels, { device });
  const step = device.compile(
    () => {
      const loss = nn.functional.crossEntropy(model.forward(x), y);
      loss.backward();
      return loss;
    },
    { passes },
  );
  const loss = device.step(() => step().item());
  const gradients = model.parameters().map(({ grad }) => Float32Array.from(grad!.dataSync()));
  const strides = latestPlanOf(step)!.planned.schedule.calls.flatMap(({ call: { work } }) =>
    work.kind === "gemm" ? [[work.problem.a.rowStride, work.problem.c.rowStride]] : [],
  );
  step.close();
  return { loss, gradients, strides };
}

describe("a head with an odd number of classes", { skip: emulatorMissing }, () => {
  const device = emulatorMissing
    ? undefined!
    : openEmulatorGpu({ precision: "tf32", multiprocessors: 1, capture: "off" });

  test("has the same gradients with padded rows", () => {
    const [padded, plain] = [run(device, {}), run(device, { rowPadding: false })];
    assert.ok(padded.strides.flat().includes(104), JSON.stringify(padded.strides));
    assert.ok(!plain.strides.some(([, ofResult]) => ofResult === 104), JSON.stringify(plain.strides));
    assert.equal(padded.loss, plain.loss);
    for (const [index, gradient] of padded.gradients.entries())
      sameBytes(gradient, plain.gradients[index]!, `gradient ${index}`);
  });
});
