/** Checkpoints of several ranks: complete or not there, and readable by any number of ranks. */

import assert from "node:assert/strict";
import { readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { openDevice } from "../../test/support/devices.js";
import { makeFolder } from "../../test/support/folders.js";
import { rejects } from "../../test/support/rejects.js";
import { Linear } from "../nn/index.js";
import { AdamW } from "../optim/index.js";
import { DataParallel, type World } from "../parallel/index.js";
import { randn } from "../tensor/index.js";
import { captureCheckpoint, loadCheckpoint, restoreCheckpoint } from "./checkpoint.js";
import { CheckpointStore } from "./checkpoints.js";

const cpu = openDevice({ threads: 1 });
const model = new Linear(20, 30).to(cpu);

/** A trained optimizer that is not split, and its whole state. */
const whole = new AdamW(model.parameters(), { lr: 0.1 });
for (const steps of [1, 2])
  cpu.step(() => {
    model
      .forward(randn([4, 20], { device: cpu }))
      .square()
      .mean()
      .mul(steps)
      .backward();
    whole.step();
    whole.zeroGrad();
  });
const saved = bytesOf(whole);

function bytesOf(optimizer: AdamW): Readonly<Record<string, string>> {
  return Object.fromEntries(
    Object.entries(optimizer.stateDict()).map(([name, tensor]) => [name, String(tensor.dataSync())]),
  );
}

/** A rank that offers to the others, and gets what rank 0 gets last. */
function rankOf(rank: number, size: number, offers: unknown[] = []): World {
  const exchange = <T>(_name: string, value: T): readonly T[] => {
    offers[rank] = value;
    return offers as T[];
  };
  return { rank, size, exchange } as unknown as World;
}

function optimizerOf(world: World): AdamW {
  const optimizer = new DataParallel(world).shardOptimizer(() => new AdamW(model.parameters(), { lr: 7 }));
  optimizer.loadStateDict(whole.stateDict());
  return optimizer;
}

/** Saves a step on all ranks; rank 0 is the last. */
function saveOn(size: number, folder: string, step: number, lacking?: number): void {
  const offers: unknown[] = [];
  for (let rank = size - 1; rank >= 0; rank--) {
    if (rank === lacking) return;
    const optimizer = optimizerOf(rankOf(rank, size, offers));
    new CheckpointStore(folder, { keep: 2 }).save(captureCheckpoint({ model, optimizer, step }));
    optimizer.release();
  }
}

test("what several ranks have saved is restored on any number of ranks, with the same bits", () => {
  for (const size of [2, 3]) {
    const folder = makeFolder();
    saveOn(size, folder, 5);
    assert.equal(readdirSync(folder).length, size);
    const checkpoint = new CheckpointStore(folder).load("latest");
    const one = new AdamW(model.parameters());
    restoreCheckpoint(checkpoint, { model, optimizer: one });
    assert.deepEqual(bytesOf(one), saved);
    one.release();
    for (const rank of [0, 1, 2, 3]) {
      const [given, loaded] = [optimizerOf(rankOf(rank, 4)), optimizerOf(rankOf(rank, 4))];
      loaded.loadStateDict(
        Object.fromEntries(Object.entries(loaded.stateDict()).map(([name, tensor]) => [name, tensor.mul(0)])),
      );
      loadCheckpoint(join(folder, checkpoint.name), { model, optimizer: loaded });
      assert.deepEqual(bytesOf(loaded), bytesOf(given));
      given.release();
      loaded.release();
    }
  }
});

test("without the last rank there is no checkpoint, and its files are removed later", () => {
  const folder = makeFolder();
  const store = new CheckpointStore(folder, { keep: 2 });
  saveOn(3, folder, 1);
  // Rank 0 has not written.
  saveOn(3, folder, 2, 0);
  assert.deepEqual(
    store.list().map(({ step }) => step),
    [1],
  );
  assert.equal(readdirSync(folder).length, 5);
  store.continueFrom(1);
  assert.equal(readdirSync(folder).length, 3);
  // Older ones go with their parts.
  for (const step of [2, 3, 4]) saveOn(3, folder, step);
  assert.equal(readdirSync(folder).length, 6);
  assert.equal(store.load("latest").step, 4);
});

test("a checkpoint with a part that is missing, altered or of another checkpoint is rejected by its name", () => {
  const folder = makeFolder();
  const store = new CheckpointStore(folder);
  saveOn(2, folder, 1);
  saveOn(2, folder, 2);
  const [first = "", second = ""] = readdirSync(folder)
    .filter((name) => name.includes("rank-1"))
    .sort()
    .map((name) => join(folder, name));
  const bytes = readFileSync(second);
  const altered = Uint8Array.from(bytes);
  altered[altered.length - 1] = 1 + (altered.at(-1) ?? 0);
  writeFileSync(second, altered);
  rejects("BAD_FILE", () => store.load("latest"), /rank-1\.\w+\.safetensors is rejected.*altered/s);
  writeFileSync(second, readFileSync(first));
  rejects("BAD_FILE", () => store.load("latest"), /belongs to another checkpoint/);
  rmSync(second);
  rejects("BAD_FILE", () => store.load("latest"), /rank-1/);
  assert.equal(store.loadLatestValid().checkpoint?.step, 1);
  writeFileSync(second, bytes);
  assert.equal(store.load("latest").step, 2);
});
