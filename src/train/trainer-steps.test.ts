/** The steps of a trainer: a maximum of steps, weights of rows in accumulated gradients, and work between steps. */

import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { openStrictDevice } from "../../test/support/devices.js";
import { rejects } from "../../test/support/rejects.js";
import { TensorDataset } from "../data/index.js";
import * as nn from "../nn/index.js";
import * as optim from "../optim/index.js";
import { manualSeed } from "../tensor/index.js";
import { captureState, describeState, restoreState } from "./state.js";
import { Trainer, type TrainerOptions } from "./trainer.js";

const device = openStrictDevice();

/** Numbers of each row, and which of them count: three batches of two rows, and one of one. */
const values = [
  [1, 2, 3],
  [4, 5, 6],
  [7, 8, 9],
  [1, 3, 5],
  [2, 4, 6],
  [3, 6, 9],
  [5, 7, 1],
];
const counted = [
  [1, 1, 1],
  [1, 0, 0],
  [0, 1, 1],
  [0, 0, 1],
  [1, 0, 0],
  [1, 1, 0],
  [0, 1, 0],
];
const rowWeights = counted.map((row) => row.reduce((sum, one) => sum + one, 0));
type Sources = [number[][], number[][]];
const data = new TensorDataset(values, counted) as TensorDataset<Sources>;

function make(more: Partial<TrainerOptions<Sources>> = {}) {
  manualSeed(3);
  const model = new nn.Linear(1, 1).to(device);
  const optimizer = new optim.SGD(model.parameters(), { lr: 0.01 });
  const trainer = new Trainer<Sources>({
    ...{ device, model, optimizer, data, batchSize: 2, epochs: 3, shuffle: false },
    // The mean over the numbers that count, as the loss of texts is over tokens.
    loss: (x, isCounted) => {
      const errors = model.forward(x.unsqueeze(-1)).squeeze(-1).sub(1).square();
      return errors.mul(isCounted).sum().div(isCounted.sum());
    },
    ...more,
  });
  return {
    ...{ model, optimizer, trainer },
    weights: () => model.parameters().flatMap((one) => [...one.dataSync()]),
  };
}

describe("a maximum of steps", () => {
  test("ends the training inside an epoch, whose record has the steps that were done", async () => {
    const { trainer } = make({ maxSteps: 6 });
    const { state, steps, epochs } = await trainer.run();
    assert.deepEqual([state, steps], ["finished", 6]);
    assert.deepEqual(
      epochs.map(({ epoch, steps }) => [epoch, steps]),
      [
        [0, 4],
        [1, 2],
      ],
    );
    const again = new Trainer<Sources>({ ...trainer.options, from: trainer.position });
    assert.deepEqual(await again.run(), { state: "finished", steps: 6, epochs: [] }, "it has ended");
    for (const open of [trainer, again]) open.close();
    rejects("BAD_ARGUMENT", () => make({ maxSteps: 0 }), /maxSteps is 0/);
  });

  test("changes nothing before it, and nothing if the epochs have fewer steps", async () => {
    const losses = async (maxSteps?: number): Promise<number[]> => {
      const { trainer } = make({ ...(maxSteps && { maxSteps }) });
      const { epochs } = await trainer.run();
      trainer.close();
      return epochs.map(({ loss }) => loss);
    };
    const whole = await losses();
    assert.deepEqual(await losses(100), whole);
    assert.deepEqual(await losses(8), whole.slice(0, 2));
  });
});

for (const compile of [true, false]) {
  test(`weights of rows make accumulated batches one large batch, whatever its rows count, ${compile ? "compiled" : "eager"}`, async () => {
    const large = make({ batchSize: 7, compile });
    const small = make({ batchSize: 2, accumulate: 4, rowWeights, compile });
    const unweighted = make({ batchSize: 2, accumulate: 4, compile });
    const results = [];
    for (const { trainer, weights } of [large, small, unweighted]) {
      const { epochs } = await trainer.run();
      results.push([...epochs.map(({ loss }) => loss), ...weights()]);
      trainer.close();
    }
    const [expected = [], weighted = [], other = []] = results;
    const distance = (list: readonly number[]): number =>
      Math.max(...list.map((value, index) => Math.abs(value - (expected[index] ?? 0))));
    assert.ok(distance(weighted) < 1e-5, `${distance(weighted)}`);
    assert.ok(distance(other) > 1e-3, "without weights the result differs");
  });
}

test("weights of rows also count in the mean of an epoch, in shuffled order", async () => {
  const { trainer } = make({ batchSize: 1, rowWeights, shuffle: true, epochs: 1 });
  const exact = make({ batchSize: 7, epochs: 1 });
  trainer.options.optimizer.lr = 0;
  exact.optimizer.lr = 0;
  const [mean, expected] = [
    (await trainer.run()).epochs[0]?.loss,
    (await exact.trainer.run()).epochs[0]?.loss,
  ];
  assert.ok(Math.abs((mean ?? 0) - (expected ?? 1)) < 1e-4, `${mean} ${expected}`);
  for (const open of [trainer, exact.trainer]) open.close();
  rejects("BAD_SHAPE", () => make({ rowWeights: [1] }), /rowWeights has 1 numbers for 7 rows/);
  rejects(
    "BAD_ARGUMENT",
    () => make({ rowWeights: [1, 1, 0, 1, 1, 1, 1] }),
    /rowWeights is 0 for row 2.*leave out rows/,
  );
});

test("a pause runs in evaluation mode after all steps, outside the measured time, and changes no bits", async (t) => {
  const plain = make();
  await plain.trainer.run();
  let nowMs = 0;
  t.mock.method(performance, "now", () => nowMs);
  const losses: number[] = [];
  const read: number[] = [];
  const { trainer, weights, model } = make({
    watcher: { sent: () => {}, lossRead: (loss) => read.push(loss), planned: () => {} },
    onStep: async (running) => {
      nowMs += 10;
      const before = read.length;
      const figure = await running.pause(async () => {
        assert.equal(model.isTraining, false);
        assert.equal(read.length, running.progress.step, "all losses have arrived");
        assert.ok(before <= read.length);
        nowMs += 5000;
        return running.latestLoss ?? Number.NaN;
      });
      losses.push(figure);
      assert.equal(model.isTraining, true);
    },
  });
  const { epochs } = await trainer.run();
  assert.deepEqual(losses, read);
  assert.deepEqual(
    epochs.map(({ seconds }) => seconds),
    [0.04, 0.04, 0.04],
  );
  assert.deepEqual(weights(), plain.weights());
  await assert.rejects(
    trainer.pause(() => {
      throw new Error("no evaluation");
    }),
    /no evaluation/,
  );
  for (const open of [trainer, plain.trainer]) open.close();
});

test("a checkpoint of trained tensors alone leaves out frozen ones, and restores into the same model", () => {
  const build = () => {
    const norm = new nn.BatchNorm1d(2);
    const model = new nn.Sequential(norm, new nn.Linear(2, 3)).to(device);
    norm.requiresGrad_(false);
    const optimizer = new optim.SGD(
      model.parameters().filter(({ requiresGrad }) => requiresGrad),
      { lr: 0.1 },
    );
    return { model, optimizer };
  };
  const [saved, other] = [build(), build()];
  const trainedOnly = true;
  const checkpoint = captureState(saved.model, saved.optimizer, { step: 1, trainedOnly });
  const names = [...checkpoint.tensors.keys()].filter((name) => name.startsWith("model."));
  assert.deepEqual(names.sort(), [
    ...["model.0.numBatchesTracked", "model.0.runningMean", "model.0.runningVar"],
    ...["model.1.bias", "model.1.weight"],
  ]);
  assert.deepEqual(
    [...describeState(saved.model, saved.optimizer, { trainedOnly }).keys()].sort(),
    [...checkpoint.tensors.keys()].sort(),
  );
  restoreState(checkpoint, other.model, other.optimizer, { trainedOnly });
  const weightOf = ({ model }: typeof saved) => [...(model.stateDict()["1.weight"]?.dataSync() ?? [])];
  assert.deepEqual(weightOf(other), weightOf(saved));
  rejects(
    "BAD_STATE",
    () => restoreState(checkpoint, other.model, other.optimizer),
    /model\.0\.weight is not in the checkpoint/,
  );
});
