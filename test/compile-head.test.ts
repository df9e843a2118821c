/**
 * The head of a classifier on a GPU: a norm, a product with a few classes, the loss and the way back through all of them are
 * three kernels. The bits are those of the eager step.
 */

import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { type Device, manualSeed, nn, randn, type Tensor, tensor } from "holdfast";
import { sameBytes } from "./support/same-bytes.js";
import { standInMissing } from "./support/stand-in.js";
import { openStandInGpu } from "./support/stand-in-gpu.js";

const [rows, width, classes] = [1100, 32, 3] as const;

/** The loss, the gradients, and what the step tells of itself. */
function run(device: Device, way: "eager" | "compiled", isWeighted: boolean) {
  manualSeed(3);
  const norms = [new nn.LayerNorm([width]), new nn.LayerNorm([width])];
  const model = new nn.Sequential(...norms, new nn.Linear(width, classes)).to(device);
  const parameters = model.parameters();
  const x = randn([rows, width], { device });
  // Of four labels one does not count.
  const labels = Int32Array.from({ length: rows }, (_, index) => ((index * index) % 7) % 4);
  const y = tensor(
    labels.map((label) => label - 1),
    { device },
  );
  const weight = tensor([0.5, 1.5, 2], { device });
  const body = (x: Tensor, y: Tensor) => {
    const options = { ignoreIndex: -1, ...(isWeighted && { weight }) };
    const loss = nn.functional.crossEntropy(model.forward(x), y, options);
    loss.backward();
    return loss;
  };
  const compiled = device.compile(body);
  const step = way === "compiled" ? compiled : body;
  const loss = device.step(() => step(x, y).item());
  const gradients = parameters.map((one) => Float32Array.from(one.grad?.dataSync() ?? []));
  const told = way === "compiled" ? compiled.explain() : "";
  compiled.close();
  return { loss, gradients, told };
}

describe("the head of a classifier on a GPU", { skip: standInMissing }, () => {
  for (const isWeighted of [false, true]) {
    test(`is three kernels with the eager bits, ${isWeighted ? "with" : "without"} weights of classes`, () => {
      const device = openStandInGpu({ precision: "f32" });
      const [eager, compiled] = [run(device, "eager", isWeighted), run(device, "compiled", isWeighted)];
      assert.equal(compiled.loss, eager.loss);
      assert.ok(Number.isFinite(eager.loss));
      for (const [index, gradient] of eager.gradients.entries()) {
        assert.ok(gradient.some((value) => value !== 0));
        sameBytes(compiled.gradients[index]!, gradient, `gradient ${index}`);
      }
      const calls = compiled.told.split("\n").filter((line) => /^ +\d+ {2}/.test(line));
      const head = calls.filter((line) => / rows /.test(line) && !/count of calls/.test(line));
      assert.equal(head.length, 3, calls.join("\n"));
      for (const [index, name] of [
        "layerNorm + linear + cro",
        "mean of losses",
        "crossEntropyGradient + l",
      ].entries()) {
        assert.ok(head[index]?.includes(name), head[index]);
      }
    });
  }
});
