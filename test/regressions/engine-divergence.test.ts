/** S12: a run whose weights were NaN ended as a success. */

import assert from "node:assert/strict";
import { nn, optim, TensorDataset, Trainer, type TrainingSummary } from "holdfast";
import { openDevice } from "../support/devices.js";
import { regressionRow } from "../support/regressions.js";

const device = openDevice();

type Sources = [number[][]];

/** How a training ends. */
type Train = (trainer: Trainer<Sources>) => Promise<TrainingSummary>;

regressionRow<Train>({
  row: "S12",
  rule: "a training most of whose steps were skipped, or whose loss is not finite, ends as diverged",
  sound: (trainer) => trainer.run(),
  faults: {
    "an end is the end of the last epoch": async (trainer) => ({
      ...(await trainer.run()),
      state: "finished",
    }),
    "only the last epoch's loss is checked, and not the skipped steps": async (trainer) => {
      const summary = await trainer.run();
      const areFinite = summary.epochs.every(({ loss, skipped }) => skipped > 0 || Number.isFinite(loss));
      return { ...summary, state: areFinite ? "finished" : "diverged" };
    },
  },
  check: async (train) => {
    for (const clipNorm of [1, undefined]) {
      const model = new nn.Linear(1, 1).to(device);
      const trainer = new Trainer<Sources>({
        ...{ device, model, optimizer: new optim.SGD(model.parameters(), { lr: 1e30 }) },
        ...{ data: new TensorDataset<Sources>([[1], [2], [3], [4]]), batchSize: 1, epochs: 2 },
        loss: (x) => model.forward(x).square().square().mean(),
        ...(clipNorm !== undefined && { clipNorm }),
      });
      const { state } = await train(trainer);
      trainer.close();
      assert.equal(state, "diverged");
    }
  },
});
