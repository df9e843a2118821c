/**
 * P1 for compiled steps: a steady one transfers nothing by itself; its inputs are on the device, and results
 * stay there.
 */

import assert from "node:assert/strict";
import { DataLoader, type Device, nn, optim, type Tensor, TensorDataset } from "holdfast";
import { openDevice } from "../support/devices.js";
import { regressionRow } from "../support/regressions.js";

/** Two full batches, and a smaller last one. */
const [rows, width, batchSize] = [45, 24, 16] as const;

const data = new TensorDataset(
  {
    values: Float32Array.from({ length: rows * width }, (_, index) => (index % 17) / 17),
    shape: [rows, width],
  },
  Int32Array.from({ length: rows }, (_, row) => row % 3),
);

/** A loss for each row: scalars would be transferred now and then. */
type Step = (x: Tensor, y: Tensor) => { readonly losses: Tensor };

/** How a batch gets to the step, and what is done with its result. */
type Feed = (device: Device, step: Step, batch: readonly [Tensor, Tensor]) => void;

const onDevice: Feed = (_device, step, batch) => void step(...batch);

interface Transfers {
  readonly up: number;
  readonly down: number;
}

const device = openDevice();
const model = new nn.Sequential(
  new nn.Linear(width, 32),
  new nn.GELU(),
  new nn.Dropout(0.1),
  new nn.Linear(32, 3),
).to(device);
const optimizer = new optim.AdamW(model.parameters(), { lr: 0.01 });
const step = device.compile((x: Tensor, y: Tensor) => {
  optimizer.zeroGrad();
  const losses = nn.functional.crossEntropy(model.forward(x), y, { reduction: "none" });
  losses.mean().backward();
  optim.clipGradNorm(model.parameters(), 1, { errorIfNonfinite: false });
  optimizer.step();
  return { losses };
});
const loader = new DataLoader(data, { batchSize, shuffle: true, seed: 1, device, resident: true });

/** The bytes of a second epoch: the first has built the plans, one for full batches and one for the last. */
function countEpoch(feed: Feed): Transfers {
  const trainEpoch = (): void => {
    for (const batch of loader) feed(device, step, batch);
  };
  trainEpoch();
  const before = device.runtime.diagnostics().transfers;
  trainEpoch();
  const { up, down } = device.runtime.diagnostics().transfers;
  assert.equal(step.plans, 2);
  return { up: up.bytes - before.up.bytes, down: down.bytes - before.down.bytes };
}

regressionRow<Feed>({
  row: "P1",
  rule: "an epoch of a compiled step uploads its order and nothing else, and downloads nothing",
  sound: onDevice,
  faults: {
    "operands on the host": (device, step, [x, y]) =>
      void step(device.fromHost(x.dataSync(), x.shape, "f32"), y),
    "a read of every loss": (_device, step, batch) => void step(...batch).losses.dataSync(),
  },
  check(feed) {
    assert.deepEqual(countEpoch(feed), { up: rows * 4, down: 0 });
  },
});

regressionRow<Feed>({
  row: "P1",
  rule: "results that are read are downloaded, and host tensors are uploaded, byte for byte",
  sound: (device, step, [x, y]) => {
    const input = device.fromHost(new Float32Array(x.numel), x.shape, "f32");
    step(input, y).losses.dataSync();
  },
  faults: { "inputs that stay on the device": onDevice },
  check(feed) {
    const batches = Math.ceil(rows / batchSize);
    // Each read-back also downloads the record of the plan that was called: its labels may have been bad.
    const record = 5 * 8;
    const expected = { up: rows * 4 + rows * width * 4, down: rows * 4 + batches * record };
    assert.deepEqual(countEpoch(feed), expected);
  },
});
