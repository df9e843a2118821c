/** Checkpoints of a whole training: everything is restored, and a checkpoint that does not match changes nothing. */

import assert from "node:assert/strict";
import { readdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { openDevice } from "../../test/support/devices.js";
import { makeFolder } from "../../test/support/folders.js";
import { rejects } from "../../test/support/rejects.js";
import { DataLoader, TensorDataset } from "../data/index.js";
import * as nn from "../nn/index.js";
import * as optim from "../optim/index.js";
import { getRngState, manualSeed, ones, randn, setRngState, tensor } from "../tensor/index.js";
import { captureCheckpoint, loadCheckpoint, restoreCheckpoint, saveCheckpoint } from "./checkpoint.js";
import { EarlyStopping } from "./early-stopping.js";

const cpu = openDevice();
const data = new TensorDataset([[1], [2], [3], [4], [5]]);

interface Sizes {
  readonly width?: number;
  readonly batchSize?: number;
  readonly shuffle?: boolean;
}

function makeTraining({ width = 2, batchSize = 2, shuffle = true }: Sizes = {}) {
  const model = new nn.Sequential(new nn.Linear(1, width), new nn.Dropout(0.5)).to(cpu);
  const optimizer = new optim.AdamW(model.parameters(), { lr: 0.1 });
  const schedule = new optim.StepSchedule(optimizer, { stepSize: 1, gamma: 0.5 });
  const loader = new DataLoader(data, { batchSize, shuffle, device: cpu });
  const earlyStopping = new EarlyStopping({ figure: "loss", patience: 3 });
  const parts = { model, optimizer, schedule, loader, earlyStopping };
  const train = (): number => {
    let total = 0;
    for (const [x] of loader) {
      total += cpu.step(() => {
        const loss = model.forward(x).square().mean();
        loss.backward();
        optimizer.step();
        optimizer.zeroGrad();
        return loss.item();
      });
      schedule.step();
      if (loader.position.batch === 1) break;
    }
    return total;
  };
  return { parts, train };
}

/** The whole state of a training, as text. */
function imageOf({ parts }: ReturnType<typeof makeTraining>): string {
  const { tensors, state } = captureCheckpoint(parts);
  return JSON.stringify([state, [...tensors].map(([name, { bytes }]) => [name, [...bytes]])]);
}

const path = join(makeFolder(), "latest.safetensors");

test("all parts are restored in the middle of an epoch, and training continues to the same bits", () => {
  manualSeed(3);
  const [first, second] = [makeTraining(), makeTraining()];
  first.train();
  first.parts.earlyStopping.note(0, { loss: 1 });
  const mean = { dtype: "u8", shape: [2], bytes: Uint8Array.of(7, 8) } as const;
  const scale = tensor([1.5], { device: cpu });
  const extra = { note: "mid", losses: [1, Number.NaN] };
  saveCheckpoint(path, { ...first.parts, step: 1, extra, tensors: { mean, scale } });
  const image = imageOf(first);
  first.parts.loader.loadStateDict(first.parts.loader.stateDict());
  const next = [first.train(), randn([2], { device: cpu }).tolist()];
  manualSeed(99);
  const restored = loadCheckpoint(path, second.parts);
  assert.deepEqual([restored.step, restored.extra], [1, extra]);
  assert.deepEqual([...restored.tensors.get("mean")!.bytes], [7, 8]);
  assert.equal(new DataView(restored.tensors.get("scale")!.bytes.slice().buffer).getFloat32(0, true), 1.5);
  assert.equal(imageOf(second), image);
  assert.deepEqual([second.train(), randn([2], { device: cpu }).tolist()], next);
  assert.deepEqual(readdirSync(join(path, "..")), ["latest.safetensors"]);
});

test("a mismatch is named in the error, and nothing changes", () => {
  const saved = makeTraining();
  saved.train();
  saveCheckpoint(path, saved.parts);
  const target = makeTraining();
  const { model, optimizer, schedule, loader } = target.parts;
  const wide = makeTraining({ width: 3 }).parts;
  const other = makeTraining({ batchSize: 3 }).parts;
  const ordered = makeTraining({ shuffle: false }).parts;
  const before = imageOf(target);
  const failing = {
    stateDict: () => ({}),
    loadStateDict: () => {
      throw new TypeError("no");
    },
  };
  for (const [parts, message] of [
    [
      { model: wide.model },
      /latest\.safetensors: .*model\.0\.weight is f32 \[2, 1\] in .* f32 \[3, 1\] in this run/,
    ],
    [{ model, optimizer: wide.optimizer }, /optimizer\.0\.firstMoment is f32 \[2, 1\]/],
    [{ model: { a: model } }, /model\.0\.weight is only in the checkpoint/],
    [{ model, optimizer, loader: other.loader }, /loader: .*batchSize was 2 and is 3 here/],
    [{ model, optimizer, loader: ordered.loader }, /rows were shuffled and are not shuffled here/],
    [{ model, schedule, loader: { train: loader } }, /loader\.train is not in the checkpoint/],
    [{ model, schedule: { a: schedule } }, /schedule is only in the checkpoint/],
    [{ model, optimizer, schedule, loader, earlyStopping: failing }, /earlyStopping: no/],
  ] as const) {
    rejects("BAD_STATE", () => loadCheckpoint(path, parts), message);
    assert.equal(imageOf(target), before, String(message));
  }
});

test("kinds that are not passed are ignored, and random state is restored only with an optimizer or on request", () => {
  manualSeed(5);
  const saved = makeTraining();
  saved.train();
  saveCheckpoint(path, saved.parts);
  const state = getRngState(cpu);
  manualSeed(6);
  const fresh = makeTraining();
  loadCheckpoint(path, { model: fresh.parts.model });
  assert.equal(getRngState(cpu).seed, "6");
  assert.deepEqual(fresh.parts.optimizer.stateDict()["0.step"]?.item(), 0);
  loadCheckpoint(path, { model: fresh.parts.model, random: true });
  assert.deepEqual(getRngState(cpu), state);
});

test("several models and optimizers are saved under their names", () => {
  const [a, b] = [makeTraining(), makeTraining()];
  const parts = {
    model: { actor: a.parts.model, critic: b.parts.model },
    optimizer: { actor: a.parts.optimizer, critic: b.parts.optimizer },
  };
  a.train();
  const bytesOf = (): string => String([...captureCheckpoint(parts).tensors].map(([, { bytes }]) => bytes));
  const [checkpoint, before] = [captureCheckpoint(parts), bytesOf()];
  assert.ok(
    checkpoint.tensors.has("model.critic.0.weight") && checkpoint.tensors.has("optimizer.actor.0.step"),
  );
  for (const module of [a, b]) module.train();
  assert.notEqual(bytesOf(), before);
  restoreCheckpoint(checkpoint, parts);
  assert.equal(bytesOf(), before);
});

test("a damaged file, another file and wrong arguments are rejected", () => {
  const { parts } = makeTraining();
  const { model } = parts;
  writeFileSync(path, "no checkpoint");
  rejects("BAD_FILE", () => loadCheckpoint(path, parts), /latest\.safetensors can't be read/);
  rejects("BAD_FILE", () => loadCheckpoint(join(path, "none"), parts));
  for (const wrong of [
    undefined,
    7,
    { model: 7 },
    { model: {} },
    { model: { "a.b": model } },
    { modle: model },
  ]) {
    rejects("BAD_ARGUMENT", () => saveCheckpoint(path, wrong as never));
  }
  rejects("BAD_ARGUMENT", () => saveCheckpoint(undefined as never, parts), /needs a path/);
  rejects("BAD_ARGUMENT", () => saveCheckpoint(path, { model, extra: { f: () => 1 } }), /JSON can.t store/);
  rejects("BAD_ARGUMENT", () => saveCheckpoint(path, { model, schedule: {} as never }), /stateDict\(\)/);
});

test("a random state survives a round trip, and an invalid one is rejected", () => {
  manualSeed(8);
  const draw = (): string =>
    String([
      randn([2], { device: cpu }).tolist(),
      nn.functional.dropout(ones([16], { device: cpu })).tolist(),
    ]);
  draw();
  const state = JSON.parse(JSON.stringify(getRngState(cpu)));
  const next = draw();
  manualSeed(9);
  setRngState(state, cpu);
  assert.equal(draw(), next);
  for (const change of [
    { seed: "x" },
    { seed: String(2n ** 64n) },
    { draws: -1 },
    { device: [1, 2] },
    { device: undefined },
  ]) {
    rejects("BAD_STATE", () => setRngState({ ...state, ...change }, cpu));
  }
});

test("averages of weights are one of the optimizers of a checkpoint", () => {
  const [model, copy] = [new nn.Linear(2, 1).to(cpu), new nn.Linear(2, 1).to(cpu)];
  const [averaged, restored] = [model, copy].map((one) => new optim.swaUtils.AveragedModel(one));
  averaged!.updateParameters();
  restoreCheckpoint(captureCheckpoint({ optimizer: { averaged: averaged! } }), {
    optimizer: { averaged: restored! },
  });
  assert.equal(restored!.nAveraged, 1);
  restored!.use(() => assert.deepEqual(copy.weight.dataSync(), model.weight.dataSync()));
});
