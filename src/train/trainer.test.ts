/** The trainer: epochs, row orders, figures, ends, and exact resume. */

import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { openStrictDevice } from "../../test/support/devices.js";
import { effort } from "../../test/support/effort.js";
import { TensorDataset } from "../data/index.js";
import * as nn from "../nn/index.js";
import * as optim from "../optim/index.js";
import { type Device, manualSeed } from "../tensor/index.js";
import { bufferSizes } from "../units/index.js";
import { EarlyStopping } from "./early-stopping.js";
import type { TrainerPosition } from "./position.js";
import { Trainer, type TrainerOptions } from "./trainer.js";

const device = openStrictDevice();

const dataOf = (rows: number) =>
  new TensorDataset(
    Array.from({ length: rows }, (_, row) => [Math.sin(row), Math.cos(3 * row)]),
    Int32Array.from({ length: rows }, (_, row) => row % 3),
  );
const rows = 22;
/** Five batches of 4 rows, and one of 2. */
const data = dataOf(rows);
type Sources = (typeof data)["columns"] extends never ? never : [number[][], Int32Array<ArrayBuffer>];
/** Six whole batches: one plan instead of two. */
const even = { data: dataOf(24) as TensorDataset<Sources> };

/** A small classifier with dropout, and its trainer; the same for the same seed. */
function make(on: Device, more: Partial<TrainerOptions<Sources>> = {}) {
  manualSeed(5);
  const model = new nn.Sequential(new nn.Dropout(0.2), new nn.Linear(2, 3)).to(on);
  const optimizer = new optim.AdamW(model.parameters(), { lr: 0.01 });
  const trainer = new Trainer<Sources>({
    ...{ device: on, model, optimizer, data: data as TensorDataset<Sources> },
    ...{ batchSize: 4, epochs: 3, clipNorm: 1 },
    loss: (x, y) => nn.functional.crossEntropy(model.forward(x), y),
    ...more,
  });
  const weights = (): number[] => model.parameters().flatMap((parameter) => [...parameter.dataSync()]);
  return { model, optimizer, trainer, weights };
}

describe("a training", () => {
  test("runs its epochs, each over all rows, and reports each", async () => {
    const { trainer } = make(device);
    const { state, steps, epochs } = await trainer.run();
    assert.deepEqual([state, steps, trainer.batches], ["finished", 18, 6]);
    assert.deepEqual(
      epochs.map(({ epoch, steps: epochSteps, lr, skipped }) => [epoch, epochSteps, lr, skipped]),
      [0, 1, 2].map((epoch) => [epoch, 6, 0.01, 0]),
    );
    assert.ok((epochs[2]?.loss ?? 9) < (epochs[0]?.loss ?? 0), "it learns");
    assert.ok(epochs.every(({ samplesPerSecond = 0, seconds }) => samplesPerSecond > 0 && seconds > 0));
    assert.equal(trainer.samplesPerSecond, epochs.at(-1)?.samplesPerSecond);
    trainer.close();
  });

  test("reports every epoch's loss in a long training: with a rate of 0 they are all equal", async () => {
    const reported: number[] = [];
    const epochs = Math.ceil((4 * bufferSizes.history + 1) / 6);
    for (const accumulate of [1, 4]) {
      const { trainer, optimizer, model } = make(device, {
        ...{ ...even, epochs, shuffle: false, accumulate },
        watcher: { sent: () => {}, lossRead: (loss) => reported.push(loss), planned: () => {} },
      });
      optimizer.lr = 0;
      for (const [, module] of model.namedModules())
        if (module instanceof nn.Dropout) (module as { p: number }).p = 0;
      reported.length = 0;
      const { epochs: records } = await trainer.run();
      assert.ok(
        trainer.compiled && trainer.batches * epochs > 4 * bufferSizes.history,
        "more than the history holds",
      );
      assert.deepEqual(new Set(records.map(({ loss }) => loss)).size, 1);
      assert.equal(reported.length, epochs * trainer.stepsPerEpoch);
      trainer.close();
    }
  });

  for (const compile of [true, false]) {
    test(`reports every step and every loss to its watcher, in order, ${compile ? "compiled" : "eager"}`, async () => {
      const reported: { steps: number[]; samples: number[]; losses: number[]; plans: number } = {
        ...{ steps: [], samples: [], losses: [], plans: 0 },
      };
      const { trainer } = make(device, {
        compile,
        watcher: {
          sent: ({ step, samples, hostMs, lr }) => {
            assert.ok(hostMs >= 0 && lr === 0.01);
            reported.steps.push(step);
            reported.samples.push(samples);
          },
          lossRead: (loss) => reported.losses.push(loss),
          planned: (compiled) => {
            reported.plans = compiled.plans;
          },
        },
      });
      const { epochs } = await trainer.run();
      assert.deepEqual(
        reported.steps,
        Array.from({ length: 18 }, (_, index) => index + 1),
      );
      assert.equal(reported.losses.length, 18);
      assert.equal(reported.plans, compile ? 2 : 0, "one for whole batches, one for the last");
      for (const [epoch, { loss }] of epochs.entries()) {
        const epochSteps = [...reported.losses.keys()].slice(6 * epoch, 6 * epoch + 6);
        const sum = epochSteps.reduce(
          (total, at) => total + (reported.losses[at] ?? 0) * (reported.samples[at] ?? 0),
          0,
        );
        assert.equal(sum / rows, loss);
      }
      trainer.close();
    });
  }

  test("waits for earlier steps before it compiles a plan, so that the throughput includes their time", async () => {
    const direct = openStrictDevice({ capture: "off" });
    const reported: string[] = [];
    const { trainer } = make(direct, {
      epochs: 1,
      watcher: {
        sent: ({ step }) => reported.push(`step ${step}`),
        lossRead: () => undefined,
        planned: () => reported.push("a plan"),
      },
    });
    const { runtime } = direct;
    const { synchronize } = runtime;
    runtime.synchronize = () => {
      reported.push("wait");
      synchronize.call(runtime);
    };
    await trainer.run();
    // Of six batches the last is smaller; the last wait is the epoch's end.
    const middle = ["step 2", "step 3", "step 4", "step 5"];
    const planned = (step: number): string[] => ["wait", `step ${step}`, "wait", "a plan"];
    assert.deepEqual(reported, [...planned(1), ...middle, ...planned(6), "wait"]);
    trainer.close();
  });

  test("is equal bit for bit compiled and eager, without dropout", async () => {
    const losses = [];
    for (const compile of [true, false]) {
      manualSeed(9);
      const model = new nn.Linear(2, 3).to(device);
      const optimizer = new optim.AdamW(model.parameters(), { lr: 0.01 });
      const trainer = new Trainer<Sources>({
        ...{
          device,
          model,
          optimizer,
          data: data as TensorDataset<Sources>,
          batchSize: 4,
          epochs: 2,
          compile,
        },
        loss: (x, y) => nn.functional.crossEntropy(model.forward(x), y),
      });
      losses.push((await trainer.run()).epochs.map(({ loss }) => loss));
      trainer.close();
    }
    assert.deepEqual(losses[0], losses[1]);
  });

  test("weighs the losses of batches by their rows", async () => {
    const model = new nn.Linear(1, 1).to(device);
    const optimizer = new optim.SGD(model.parameters(), { lr: 0 });
    const values = new TensorDataset([[1], [2], [6]]);
    const trainer = new Trainer<[number[][]]>({
      ...{ device, model, optimizer, data: values as TensorDataset<[number[][]]>, batchSize: 2, epochs: 1 },
      loss: (x) => x.mean().add(model.weight.sum().mul(0)),
      shuffle: false,
    });
    const { epochs } = await trainer.run();
    assert.equal(epochs[0]?.loss, 3);
    trainer.close();
  });

  test("stopped at any step and resumed has the weights and losses of one that never stopped", async () => {
    const whole = make(device, even);
    const expected = await whole.trainer.run();
    for (const stopAt of effort({ quick: [13], thorough: [1, 5, 6, 7, 13] })) {
      const halt = new AbortController();
      const first = make(device, {
        ...even,
        signal: halt.signal,
        onStep: ({ progress }) => {
          if (progress.step === stopAt) halt.abort();
        },
      });
      const before = await first.trainer.run();
      assert.equal(before.state, "stopped");
      const position: TrainerPosition = JSON.parse(JSON.stringify(first.trainer.position));
      // The same model continues, as after a restore of its state.
      const second = new Trainer<Sources>({ ...first.trainer.options, from: position, signal: undefined! });
      const rest = await second.run();
      assert.deepEqual(
        [...before.epochs, ...rest.epochs].map(({ epoch, loss }) => [epoch, loss]),
        expected.epochs.map(({ epoch, loss }) => [epoch, loss]),
        `stopped at ${stopAt}`,
      );
      assert.deepEqual(first.weights(), whole.weights(), `stopped at ${stopAt}`);
      first.trainer.close();
      second.close();
    }
    whole.trainer.close();
  });

  test("reacts to a signal even if its epochs are shorter than the time between two turns", async (t) => {
    let nowMs = 0;
    t.mock.method(performance, "now", () => nowMs);
    const halt = new AbortController();
    const { trainer } = make(device, {
      ...{ ...even, epochs: 10, signal: halt.signal, compile: false },
      onStep: ({ progress: { step } }) => {
        nowMs += 5;
        if (step === 1) setImmediate(() => halt.abort());
      },
    });
    const { state, steps } = await trainer.run();
    assert.deepEqual([state, steps], ["stopped", 11]);
    trainer.close();
  });

  test("evaluates the model after each epoch in evaluation mode, and continues training", async () => {
    const modes: boolean[] = [];
    const { trainer, model } = make(device, {
      ...even,
      compile: false,
      evaluate: (epoch) => {
        modes.push(model.isTraining);
        return { accuracy: epoch / 10 };
      },
      onStep: () => void assert.equal(model.isTraining, true),
    });
    const { epochs } = await trainer.run();
    assert.deepEqual(modes, [false, false, false]);
    assert.deepEqual(
      epochs.map(({ figures }) => figures),
      [{ accuracy: 0 }, { accuracy: 0.1 }, { accuracy: 0.2 }],
    );
    trainer.close();
  });

  test("ends early when a figure has not improved for the patience", async () => {
    const figures = [0.5, 0.6, 0.55, 0.58, 0.9];
    const { trainer } = make(device, {
      ...{ ...even, epochs: 5, compile: false },
      evaluate: (epoch) => ({ accuracy: figures[epoch] ?? 0 }),
      earlyStopping: { figure: "accuracy", better: "larger", patience: 2 },
    });
    const { state, epochs } = await trainer.run();
    assert.deepEqual([state, epochs.length], ["early", 4]);
    trainer.close();
  });

  test("advances a schedule after each step or each epoch", async () => {
    for (const [after, expected] of [
      ["step", [0.01, 0.01 / 2 ** 6, 0.01 / 2 ** 12]],
      ["epoch", [0.01, 0.005, 0.0025]],
    ] as const) {
      class Halving extends optim.Schedule {
        protected override lrFrom(baseLr: number, steps: number): number {
          return baseLr / 2 ** steps;
        }
      }
      const rates: number[] = [];
      const candidate = make(device, { ...even, compile: false });
      const trainer = new Trainer<Sources>({
        ...candidate.trainer.options,
        schedule: { of: new Halving(candidate.optimizer), after },
        onStep: ({ progress }) => {
          if (progress.batch === 1) rates.push(candidate.optimizer.lr * (after === "step" ? 2 : 1));
        },
      });
      await trainer.run();
      assert.deepEqual(rates, expected, after);
      for (const open of [candidate.trainer, trainer]) open.close();
    }
  });

  test("releases its device memory", async () => {
    const { trainer } = make(device);
    trainer.close();
    data.release(device);
    const before = device.runtime.budget.usedBy("data set");
    const other = make(device, { epochs: 1 });
    await other.trainer.run();
    other.trainer.close();
    data.release(device);
    assert.equal(device.runtime.budget.usedBy("data set"), before);
  });

  test("has a loss after its first steps, before the history is full", async () => {
    const hasLoss: boolean[] = [];
    const { trainer } = make(device, {
      ...{ ...even, epochs: 1 },
      onStep: ({ latestLoss }) => {
        hasLoss.push(latestLoss !== undefined);
        // The device has run the sent steps, so the next step may have a loss.
        device.runtime.synchronize();
      },
    });
    await trainer.run();
    assert.ok(hasLoss.indexOf(true) <= 1, hasLoss.join());
    assert.ok(hasLoss.slice(1).every(Boolean));
    trainer.close();
  });

  test("rejects a label outside the classes, compiled and eager, by batch and row", async () => {
    const bad = Int32Array.from({ length: rows }, (_, row) => (row === 17 ? 3 : row % 3));
    const wrong = new TensorDataset(
      Array.from({ length: rows }, (_, row) => [row, 1]),
      bad,
    );
    for (const compile of [true, false]) {
      const { trainer } = make(device, { data: wrong as TensorDataset<Sources>, shuffle: false, compile });
      await assert.rejects(trainer.run(), {
        code: "BAD_INDEX",
        message: /^(Batch 4 of epoch 0: )?crossEntropy: the target of row 1 is 3, but there are 3 classes/,
      });
      trainer.close();
    }
  });

  test("continues if a loss is NaN for another reason: the device skips such steps", async () => {
    const { trainer, model, weights } = make(device, {
      epochs: 1,
      loss: (x) => model.forward(x).mean().sub(1e30).sqrt(),
    });
    const before = weights();
    const { epochs } = await trainer.run();
    assert.ok(Number.isNaN(epochs[0]?.loss));
    assert.equal(epochs[0]?.skipped, 6);
    assert.deepEqual(weights(), before);
    trainer.close();
  });

  test("rejects no rows and no epochs", () => {
    for (const wrong of [{ batchSize: 0 }, { epochs: 0 }, { batchSize: 1.5 }]) {
      assert.throws(() => make(device, wrong), { code: "BAD_ARGUMENT", message: /whole number/ });
    }
  });
});

/** A model without dropout, so that two trainings differ only by their batches. */
function makePlain(more: Partial<TrainerOptions<Sources>> = {}) {
  manualSeed(9);
  const model = new nn.Linear(2, 3).to(device);
  const optimizer = new optim.AdamW(model.parameters(), { lr: 0.05 });
  return make(device, {
    ...{ model, optimizer, seed: 4, clipNorm: 0.2 },
    loss: (x, y) => nn.functional.crossEntropy(model.forward(x), y),
    ...more,
  });
}

const weightsOf = ({ trainer }: ReturnType<typeof make>): number[] =>
  trainer.options.model.parameters().flatMap((parameter) => [...parameter.dataSync()]);

describe("accumulated gradients", () => {
  for (const compile of [true, false]) {
    test(`of several batches equal those of one large batch, also in a smaller last step, ${compile ? "compiled" : "eager"}`, async () => {
      // Of 22 rows: batches of 4, 4, 4 and of 4, 4, 2, or of 12 and of 10.
      const [accumulated, whole] = [
        makePlain({ batchSize: 4, accumulate: 3, compile }),
        makePlain({ batchSize: 12, compile }),
      ];
      const [a, b] = [await accumulated.trainer.run(), await whole.trainer.run()];
      assert.deepEqual([a.steps, accumulated.trainer.stepsPerEpoch, accumulated.trainer.batches], [6, 2, 6]);
      for (const [epoch, { loss, steps }] of a.epochs.entries()) {
        assert.equal(steps, 2);
        assert.ok(Math.abs(loss - b.epochs[epoch]!.loss) < 1e-6, `epoch ${epoch}`);
      }
      for (const [index, weight] of weightsOf(whole).entries())
        assert.ok(Math.abs(weight - weightsOf(accumulated)[index]!) < 1e-5, `weight ${index}`);
      if (compile)
        assert.equal(accumulated.trainer.compiled?.plans, 2, "one for whole batches, one for the last");
      for (const { trainer } of [accumulated, whole]) trainer.close();
    });
  }

  test("are equal bit for bit compiled and eager", async () => {
    const ends = [];
    for (const compile of [true, false]) {
      const candidate = makePlain({ accumulate: 4, compile });
      const { epochs } = await candidate.trainer.run();
      ends.push([epochs.map(({ loss }) => loss), weightsOf(candidate)]);
      candidate.trainer.close();
    }
    assert.deepEqual(ends[0], ends[1]);
  });

  test("stopped at any step and resumed have the weights and losses of a training that never stopped", async () => {
    const options = { ...even, accumulate: 4, compile: effort({ quick: false, thorough: true }) };
    const whole = make(device, options);
    const expected = await whole.trainer.run();
    assert.equal(expected.steps, 6);
    for (const stopAt of effort({ quick: [2, 3], thorough: [1, 2, 3] })) {
      const halt = new AbortController();
      const first = make(device, {
        ...options,
        signal: halt.signal,
        onStep: ({ progress }) => {
          if (progress.step === stopAt) halt.abort();
        },
      });
      const before = await first.trainer.run();
      const position: TrainerPosition = JSON.parse(JSON.stringify(first.trainer.position));
      assert.deepEqual([position.batch, position.losses.length], stopAt === 2 ? [0, 0] : [4, 1]);
      const second = new Trainer<Sources>({ ...first.trainer.options, from: position, signal: undefined! });
      const rest = await second.run();
      assert.deepEqual(
        [...before.epochs, ...rest.epochs].map(({ epoch, loss }) => [epoch, loss]),
        expected.epochs.map(({ epoch, loss }) => [epoch, loss]),
        `stopped at ${stopAt}`,
      );
      assert.deepEqual(first.weights(), whole.weights(), `stopped at ${stopAt}`);
      for (const open of [first.trainer, second]) open.close();
    }
    whole.trainer.close();
  });

  test("make one step for the watcher, the schedule and onStep, with all its rows", async () => {
    for (const compile of [true, false]) {
      const [samples, losses]: [number[], number[]] = [[], []];
      const candidate = make(device, {
        ...{ accumulate: 4, epochs: 1, compile },
        watcher: {
          sent: (step) => samples.push(step.samples),
          lossRead: (loss) => losses.push(loss),
          planned: () => undefined,
        },
      });
      const schedule = new optim.StepSchedule(candidate.optimizer, { stepSize: 1 });
      let calls = 0;
      const trainer = new Trainer<Sources>({
        ...candidate.trainer.options,
        schedule: { of: schedule, after: "step" },
        onStep: () => void calls++,
      });
      const { epochs } = await trainer.run();
      assert.deepEqual([samples, losses.length, calls, schedule.steps], [[16, 6], 2, 2, 2]);
      assert.equal((losses[0]! * 16 + losses[1]! * 6) / rows, epochs[0]?.loss);
      for (const open of [candidate.trainer, trainer]) open.close();
    }
  });

  test("name the batch of a wrong label, and reject a position in the middle of a step", async () => {
    const bad = Int32Array.from({ length: rows }, (_, row) => (row === 17 ? 3 : row % 3));
    const wrong = new TensorDataset(
      Array.from({ length: rows }, (_, row) => [row, 1]),
      bad,
    );
    const { trainer } = make(device, {
      data: wrong as TensorDataset<Sources>,
      shuffle: false,
      accumulate: 3,
    });
    await assert.rejects(trainer.run(), { code: "BAD_INDEX", message: /^Batch 4 of epoch 0: / });
    const from = { epoch: 0, batch: 2, step: 1, losses: [1] };
    assert.throws(() => make(device, { accumulate: 3, from }), {
      code: "BAD_STATE",
      message: /at batch 2 with accumulate 3/,
    });
    assert.throws(() => make(device, { accumulate: 0 }), {
      code: "BAD_ARGUMENT",
      message: /accumulate is 0/,
    });
    trainer.close();
  });
});

describe("early stopping", () => {
  test("continues from a state as if it had seen all epochs", () => {
    const options = { figure: "loss", patience: 2 } as const;
    const [whole, first] = [new EarlyStopping(options), new EarlyStopping(options)];
    for (const [epoch, loss] of [3, 2, 2.5].entries()) {
      whole.note(epoch, { loss });
      first.note(epoch, { loss });
    }
    const second = new EarlyStopping(options);
    second.loadStateDict(JSON.parse(JSON.stringify(first.stateDict())));
    assert.deepEqual([whole.note(3, { loss: 2 }), second.note(3, { loss: 2 })], [true, true]);
  });

  test("never treats NaN as better, and lists the figures if the name is unknown", () => {
    const stopping = new EarlyStopping({ figure: "loss", patience: 1 });
    assert.equal(stopping.note(0, { loss: 1 }), false);
    assert.equal(stopping.note(1, { loss: Number.NaN }), true);
    assert.throws(() => stopping.note(2, { accuracy: 1 }), {
      code: "BAD_ARGUMENT",
      message: /"loss".*accuracy/,
    });
    assert.throws(() => new EarlyStopping({ figure: "loss", patience: 0 }), { code: "BAD_ARGUMENT" });
  });
});
