/** A diverged training ends with the reason; skipped steps are counted across a stop and a resume. */

import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { openStrictDevice } from "../../test/support/devices.js";
import { TensorDataset } from "../data/index.js";
import * as nn from "../nn/index.js";
import * as optim from "../optim/index.js";
import { manualSeed } from "../tensor/index.js";
import { Trainer, type TrainerOptions } from "./trainer.js";

const device = openStrictDevice();
type Sources = [number[][]];
/** Four batches of two rows. With a bad row the loss of its batch overflows. */
const rowsWith = (badRow?: number): number[][] =>
  Array.from({ length: 8 }, (_, row) => [row === badRow ? 1e30 : row / 8]);

function make(badRow?: number, more: Partial<TrainerOptions<Sources>> & { readonly lr?: number } = {}) {
  const { lr = 0.01, ...options } = more;
  manualSeed(5);
  const model = new nn.Linear(1, 1).to(device);
  return new Trainer<Sources>({
    ...{ device, model, optimizer: new optim.SGD(model.parameters(), { lr }) },
    ...{ data: new TensorDataset<Sources>(rowsWith(badRow)), batchSize: 2, epochs: 3, shuffle: false },
    loss: (x) => model.forward(x).square().square().mean(),
    ...options,
  });
}

describe("a training diverges", () => {
  test("if most steps of an epoch are skipped", async () => {
    const trainer = make(undefined, { lr: 1e30, clipNorm: 1 });
    const { state, reason, epochs, steps } = await trainer.run();
    assert.equal(state, "diverged");
    assert.match(reason ?? "", /^epoch 0: \d of 4 steps were skipped, because a gradient was not finite$/);
    assert.deepEqual([epochs.length, steps], [1, 4], "it ends with the epoch that shows it");
    assert.ok(epochs[0]?.diverged && reason?.endsWith(epochs[0].diverged));
    trainer.close();
  });

  for (const compile of [true, false]) {
    test(`if a loss is not finite and the step is not skipped, ${compile ? "compiled" : "eager"}`, async () => {
      const trainer = make(4, { compile });
      const { state, reason } = await trainer.run();
      assert.equal(state, "diverged");
      assert.match(reason ?? "", /^epoch 0: the loss was not finite in 2 of 4 steps$/);
      trainer.close();
    });
  }

  test("if the evaluation's loss is not finite", async () => {
    const trainer = make(undefined, { evaluate: (epoch) => ({ loss: epoch === 1 ? Number.NaN : 1 }) });
    const { state, reason, epochs } = await trainer.run();
    assert.deepEqual(
      [state, reason, epochs.length],
      ["diverged", "epoch 1: the evaluation's loss is NaN", 2],
    );
    trainer.close();
  });
});

describe("an occasionally skipped step", () => {
  test("is not divergence", async () => {
    const trainer = make(4, { clipNorm: 1 });
    const { state, epochs } = await trainer.run();
    assert.deepEqual([state, epochs.map(({ skipped }) => skipped)], ["finished", [1, 2, 3]]);
    trainer.close();
  });

  test("is counted after a stop in the middle of an epoch, too", async () => {
    const halt = new AbortController();
    // After the bad batch of the second epoch.
    const onStep = ({ progress }: Trainer<Sources>) => progress.step === 7 && halt.abort();
    const first = make(4, { clipNorm: 1, signal: halt.signal, onStep: (trainer) => void onStep(trainer) });
    assert.equal((await first.run()).state, "stopped");
    const { position } = first;
    assert.deepEqual([position.step, position.skipped, position.skippedInEpoch], [7, 2, 1]);
    first.close();
    const second = make(4, { clipNorm: 1, from: position });
    const { state, epochs } = await second.run();
    assert.deepEqual([state, epochs.map(({ skipped }) => skipped)], ["finished", [2, 3]]);
    second.close();
  });
});
