/** A training that is captured, saved and restored continues to the same bits as one that was never stopped. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { prepareTraining, type StepBody } from "../../test/support/compiled-training.js";
import { openStrictDevice, withDevice } from "../../test/support/devices.js";
import { makeFolder } from "../../test/support/folders.js";
import { rejects } from "../../test/support/rejects.js";
import { sameNamedBytes } from "../../test/support/same-bytes.js";
import type { Dtype } from "../ir/index.js";
import * as nn from "../nn/index.js";
import * as optim from "../optim/index.js";
import { type Device, manualSeed, randn } from "../tensor/index.js";
import type { Checkpoint } from "./checkpoint-file.js";
import { CheckpointStore } from "./checkpoints.js";
import { captureState, describeState, restoreState, restoreWeights } from "./state.js";

const [rows, features] = [8, 6];

/** Trains on batches that depend on the step only. */
function trainSteps(device: Device, step: StepBody, from: number, to: number, compiled: boolean): void {
  const run = compiled
    ? device.compile(step)
    : (...batch: Parameters<StepBody>) => device.step(() => step(...batch));
  for (let at = from; at < to; at++) {
    const values = Float32Array.from({ length: rows * features }, (_, index) => Math.sin(at * 31 + index));
    const x = device.fromHost(values, [rows, features], "f32");
    const y = device.fromHost(
      Int32Array.from({ length: rows }, (_, row) => (row + at) % 3),
      [rows],
      "i32",
    );
    for (const tensor of [x, y]) tensor.keep();
    run(x, y);
  }
}

/** Through a file, as in another process. */
function throughFile(checkpoint: Checkpoint): Checkpoint {
  const store = new CheckpointStore(makeFolder());
  store.save(checkpoint);
  return store.load("latest");
}

const variants = [
  { kind: "deep", compiled: false },
  { kind: "deep", compiled: true },
  { kind: "running", compiled: true },
] as const;

for (const { kind, compiled } of variants) {
  test(`five steps, a restore from a file and five more steps equal ten steps, ${compiled ? "compiled" : "eager"}, ${kind}`, () => {
    const straight = withDevice({}, (device) => {
      const training = prepareTraining(device, kind);
      trainSteps(device, training.step, 0, 10, compiled);
      return { bytes: training.read(), next: String(randn([4], { device }).tolist()) };
    });
    const saved = withDevice({}, (device) => {
      const training = prepareTraining(device, kind);
      trainSteps(device, training.step, 0, 5, compiled);
      return throughFile(captureState(training.model, training.optimizer, { step: 5 }));
    });
    manualSeed(99);
    const resumed = withDevice({}, (device) => {
      const training = prepareTraining(device, kind);
      manualSeed(77);
      restoreState(saved, training.model, training.optimizer);
      trainSteps(device, training.step, 5, 10, compiled);
      return { bytes: training.read(), next: String(randn([4], { device }).tolist()) };
    });
    sameNamedBytes(resumed.bytes, straight.bytes, "after ten steps");
    assert.equal(resumed.next, straight.next, "the next draw on the host");
  });
}

test("without the random state the training ends with other bits, because of dropout", () => {
  const endOf = (forget: boolean) =>
    withDevice({}, (device) => {
      const { model, optimizer, step, read } = prepareTraining(device);
      trainSteps(device, step, 0, 2, false);
      const saved = captureState(model, optimizer, { step: 2 });
      trainSteps(device, step, 2, 4, false);
      restoreState(saved, model, optimizer);
      if (forget) device.reseed(5n);
      trainSteps(device, step, 2, 4, false);
      return Buffer.concat(Object.values(read()));
    });
  assert.notEqual(Buffer.compare(endOf(true), endOf(false)), 0);
});

const cpu = openStrictDevice();

function makeSmall(width = 3, dtype: Dtype = "f32"): { model: nn.Module; optimizer: optim.Optimizer } {
  const model = new nn.Linear(2, width).to(cpu, dtype);
  return { model, optimizer: new optim.AdamW(model.parameters()) };
}

function bytesOf({ model, optimizer }: ReturnType<typeof makeSmall>): Record<string, Uint8Array> {
  const { tensors } = captureState(model, optimizer, { step: 0 });
  return Object.fromEntries([...tensors].map(([name, { bytes }]) => [name, bytes]));
}

test("a checkpoint with other shapes, another dtype or missing tensors is rejected, and nothing changes", () => {
  const target = makeSmall();
  const before = bytesOf(target);
  const capture = ({ model, optimizer }: ReturnType<typeof makeSmall>) =>
    captureState(model, optimizer, { step: 4 });
  const whole = capture(makeSmall());
  const without = (name: string): Checkpoint => ({
    ...whole,
    tensors: new Map([...whole.tensors].filter(([tensorName]) => tensorName !== name)),
  });
  for (const [checkpoint, reason] of [
    [capture(makeSmall(4)), /model\.weight is f32 \[4, 2\] in the checkpoint and f32 \[3, 2\] in this run/],
    [capture(makeSmall(3, "bf16")), /model\.weight is bf16/],
    [without("optimizer.1.secondMoment"), /optimizer\.1\.secondMoment is not in the checkpoint/],
    [without("random.state"), /random\.state is not in the checkpoint/],
    [{ ...whole, state: { random: { seed: "many", draws: 3 } } }, /no valid position of the random numbers/],
    [{ ...whole, state: {} }, /no valid position of the random numbers/],
  ] as const) {
    rejects("BAD_STATE", () => restoreState(checkpoint, target.model, target.optimizer), reason);
    sameNamedBytes(bytesOf(target), before, "the model that rejected");
  }
});

test("a run's additions are restored under their names, with the step and the model's name", () => {
  const { model, optimizer } = makeSmall();
  const mean = { name: "mean", dtype: "f64" as const, shape: [1], bytes: new Uint8Array(8).fill(7) };
  const state = { epoch: 2, cursor: 31, fold: 1, settings: { lr: 0.1 } };
  const saved = throughFile(
    captureState(model, optimizer, { step: 31, model: "small", tensors: [mean], state }),
  );
  const { step, tensors, state: found } = restoreState(saved, model, optimizer);
  assert.equal(step, 31);
  assert.deepEqual([...tensors], [["mean", mean]]);
  assert.deepEqual({ ...found, random: undefined }, { ...state, model: "small", random: undefined });
});

test("weights alone are restored without an optimizer, and random draws continue unchanged", () => {
  const [trained, fresh] = [makeSmall(), makeSmall()];
  const saved = captureState(trained.model, trained.optimizer, { step: 1 });
  manualSeed(3);
  restoreWeights(saved, fresh.model);
  const next = randn([3], { device: cpu }).tolist();
  manualSeed(3);
  assert.deepEqual(randn([3], { device: cpu }).tolist(), next);
  assert.deepEqual(fresh.model.parameters()[0]!.tolist(), trained.model.parameters()[0]!.tolist());
});

test("captured tensors are described by the same names, dtypes and shapes", () => {
  const { model, optimizer } = makeSmall();
  const described = describeState(model, optimizer);
  const captured = captureState(model, optimizer, { step: 0 }).tensors;
  assert.deepEqual([...described.keys()], [...captured.keys()]);
  for (const [name, { dtype, shape }] of captured) {
    assert.deepEqual([described.get(name)?.dtype, described.get(name)?.shape], [dtype, shape]);
  }
});

test("a model without parameters has nothing to capture", () => {
  const { optimizer } = makeSmall();
  rejects(
    "BAD_ARGUMENT",
    () => captureState(new nn.ReLU(), optimizer, { step: 0 }),
    /ReLU has no parameters/,
  );
});
