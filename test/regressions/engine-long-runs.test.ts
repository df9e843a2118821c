/** S10: a trainer's losses were wrong once it had made more steps than the step's history keeps, and then NaN. */

import assert from "node:assert/strict";
import { nn, optim, TensorDataset, Trainer } from "holdfast";
import { TrainingSteps } from "../../src/train/training-steps.js";
import { bufferSizes } from "../../src/units/index.js";
import { openDevice } from "../support/devices.js";
import { regressionRow } from "../support/regressions.js";

const device = openDevice();
// A real history is full after a minute of training on a GPU, and in no test.
bufferSizes.history = 8;

type Sources = [number[][]];

/** Runs a training in some way. */
type Run = <T>(body: () => Promise<T>) => Promise<T>;

regressionRow<Run>({
  row: "S10",
  rule: "with a learning rate of 0 every epoch has the same loss, and every step's loss is known, for any number of steps",
  sound: (body) => body(),
  faults: {
    "losses are looked up by their index in a history that drops its oldest entries": async (body) => {
      const { takeLosses } = TrainingSteps.prototype;
      let offset = 0;
      TrainingSteps.prototype.takeLosses = function () {
        const losses = (this.update?.history["loss"] ?? []).slice(offset);
        offset += losses.length;
        return losses;
      };
      try {
        return await body();
      } finally {
        TrainingSteps.prototype.takeLosses = takeLosses;
      }
    },
  },
  check: async (run) => {
    const model = new nn.Linear(1, 1).to(device);
    let lossCount = 0;
    const trainer = new Trainer<Sources>({
      ...{ device, model, optimizer: new optim.SGD(model.parameters(), { lr: 0 }) },
      ...{ data: new TensorDataset<Sources>([[1], [2], [3], [4], [5]]), batchSize: 1, epochs: 6 },
      loss: (x) => model.forward(x).square().mean(),
      shuffle: false,
      watcher: { sent: () => undefined, lossRead: () => void lossCount++, planned: () => undefined },
    });
    const { epochs } = await run(() => trainer.run());
    trainer.close();
    assert.deepEqual(new Set(epochs.map(({ loss }) => loss)).size, 1);
    assert.equal(lossCount, 30);
  },
});
