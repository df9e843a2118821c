/**
 * N3: a cross entropy as the logarithm of a softmax gave infinity if the probability had underflowed.
 * Holdfast's works on logits, and loses no digit however large or far apart they are.
 */

import assert from "node:assert/strict";
import { nn, type Tensor } from "holdfast";
import { openDevice } from "../support/devices.js";
import { regressionRow } from "../support/regressions.js";

const cpu = openDevice({ threads: 1 });

type Loss = (logits: Tensor, target: Tensor) => Tensor;

/** The logarithm of a softmax, at the target: the textbook's formula. */
const logOfSoftmax: Loss = (logits, target) =>
  nn.functional.nllLoss(nn.functional.softmax(logits, -1).log(), target);

/** log Σ exp without subtracting the maximum. */
const bareLogSum: Loss = (logits, target) =>
  nn.functional.nllLoss(logits.sub(logits.exp().sum(-1, { keepdim: true }).log()), target);

/** The maximum and the logarithm of the sum are added before the target's logit is subtracted. */
const joinedLogSum: Loss = (logits, target) =>
  nn.functional.nllLoss(logits.sub(logits.logsumexp(-1, { keepdim: true })), target);

function check(loss: Loss): void {
  for (const dtype of ["f32", "f64", "f16", "bf16"] as const) {
    cpu.step(() => {
      const logits = cpu.fromHost([-50, -60, 100], [1, 3], dtype);
      logits.requiresGrad = true;
      const actual = loss(logits, cpu.fromHost([0], [1], "i32"));
      assert.ok(Math.abs(actual.item() - 150) <= 1e-5, `${dtype}: the loss is ${actual.item()}`);
      actual.backward();
      const gradient = logits.grad ?? assert.fail("no gradient arrived");
      const values = [...gradient.dataSync()];
      const isNear = [-1, 0, 1].every((value, at) => Math.abs(values[at]! - value) <= 1e-12);
      assert.ok(isNear, `${dtype}: the gradient is ${values}, not p − onehot`);
    });
  }
  // Large logits that are close to each other: log(1 + e^−0.25) + 0.25, to the last digits of f32.
  cpu.step(() => {
    const logits = cpu.fromHost([65_536, 65_536.25], [1, 2], "f32");
    const actual = loss(logits, cpu.fromHost([0], [1], "i32")).item();
    const expected = Math.log1p(Math.exp(-0.25)) + 0.25;
    assert.ok(Math.abs(actual - expected) <= 1e-6, `the loss of large logits is ${actual}, not ${expected}`);
  });
}

regressionRow<Loss>({
  row: "N3",
  rule: "the cross entropy of logits [−50, −60, 100] with target 0 is 150, and its gradient p − onehot",
  sound: nn.functional.crossEntropy,
  faults: {
    "the logarithm of a softmax": logOfSoftmax,
    "the maximum is not subtracted": bareLogSum,
    "the maximum and the logarithm of the sum are one number": joinedLogSum,
  },
  check,
});
