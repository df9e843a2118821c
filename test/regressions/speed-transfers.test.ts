/**
 * P1: operands were on the host, and 211 GB were uploaded in an epoch. The data set is on the device: a
 * steady step uploads nothing, an epoch its order, and only values that are read are downloaded. The counts
 * are compared with the declared ones.
 */

import assert from "node:assert/strict";
import { DataLoader, nn, noGrad, type Tensor, TensorDataset } from "holdfast";
import { openDevice } from "../support/devices.js";
import { regressionRow } from "../support/regressions.js";

const cpu = openDevice();

const [rows, width, batchSize] = [1000, 24, 64];
const data = new TensorDataset(
  {
    values: Float32Array.from({ length: rows * width }, (_, index) => (index % 17) / 17),
    shape: [rows, width],
  },
  Int32Array.from({ length: rows }, (_, row) => row % 3),
);
const loadFrom = (location: "device" | "host") =>
  new DataLoader(data, { batchSize, shuffle: true, seed: 1, device: cpu, resident: location === "device" });

/** Where the rows are, and the batch that a step works on. */
interface Feed {
  readonly rowsOn: "device" | "host";
  readonly feed: (batch: readonly [Tensor, Tensor]) => readonly [Tensor, Tensor];
}

regressionRow<Feed>({
  row: "P1",
  rule: "the uploaded and downloaded bytes of a steady step are counted and equal the declared ones: an order an epoch up; the loss and the highest label down",
  sound: { rowsOn: "device", feed: (batch) => batch },
  faults: {
    "a loader that uploads each batch's rows": { rowsOn: "host", feed: (batch) => batch },
    "operands on the host": {
      rowsOn: "device",
      feed: ([x, y]) => [cpu.fromHost(x.dataSync(), x.shape, "f32"), y],
    },
  },
  check({ rowsOn, feed }) {
    const model = new nn.Sequential(
      new nn.Linear(width, 32),
      new nn.GELU(),
      new nn.Dropout(0.1),
      new nn.Linear(32, 3),
    ).to(cpu);
    const loader = loadFrom(rowsOn);
    const train = (batch: readonly [Tensor, Tensor]): number =>
      cpu.step(() => {
        model.zeroGrad();
        const [x, y] = feed(batch);
        const loss = nn.functional.crossEntropy(model.forward(x), y);
        loss.backward();
        noGrad(() => {
          for (const parameter of model.parameters())
            if (parameter.grad) parameter.sub_(parameter.grad.mul(0.05));
        });
        return loss.item();
      });
    const trainEpoch = (): void => {
      for (const batch of loader) train(batch);
    };
    trainEpoch();
    const before = cpu.runtime.diagnostics().transfers;
    trainEpoch();
    const { up, down } = cpu.runtime.diagnostics().transfers;
    assert.deepEqual(
      { up: up.bytes - before.up.bytes, down: down.bytes - before.down.bytes },
      // Downloads are the loss of every step, and its highest label, which crossEntropy checks before it uses
      // them.
      { up: rows * 4, down: loader.length * 2 * 4 },
    );
    assert.deepEqual(loader.uploads, { perEpoch: rows * 4, perBatch: 0 });
    loader.close();
  },
});
