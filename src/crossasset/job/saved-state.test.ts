/** The state in a checkpoint must match its job. An altered state is rejected, and the run's folder stays unchanged. */

import assert from "node:assert/strict";
import { join } from "node:path";
import { describe, test } from "node:test";
import { bytesIn } from "../../../test/support/folder-bytes.js";
import { unpackRun } from "../../../test/support/kept-run.js";
import { rejects } from "../../../test/support/rejects.js";
import type { JsonRecord } from "../../records/index.js";
import { CheckpointStore } from "../../train/index.js";
import { openJobRun } from "./job-run.js";
import { readSavedState, requireLayout, type SavedState } from "./saved-state.js";
import { defaultSettings } from "./settings.js";

const run = unpackRun("0.1.0", "stopped");
const store = new CheckpointStore(join(run, "checkpoints"));
const { name: _name, ...checkpoint } = store.load("latest");
const settings = { ...defaultSettings, folds: 2, epochs: 2, batch: 15, generate: 12_000, precision: "f32" };
const saved = checkpoint.state as unknown as SavedState & JsonRecord;

describe("a checkpoint's state", () => {
  test("is accepted if a job wrote it", () => {
    const { fold, position, results } = readSavedState(saved, settings);
    assert.deepEqual([fold, position.epoch, position.batch, position.step, results.length], [1, 1, 1, 4, 1]);
    requireLayout({ ...saved, step: 8 }, { stepsPerEpoch: [2, 3], epochs: 2 });
  });

  test("is rejected if a field has another type or contradicts another field", () => {
    const { position, epochs, results } = saved;
    const wrong: readonly (readonly [JsonRecord, RegExp])[] = [
      [{ fold: 7 }, /fold is 7, but the job has 2 folds/],
      [{ fold: 0 }, /it has results of 1 folds, but it is in fold 0/],
      [{ fold: -1 }, /fold is not a whole number/],
      [{ fold: "1" }, /fold is not a whole number/],
      [{ position: null }, /position is not a record/],
      [{ position: { ...position, epoch: 9 } }, /position\.epoch is 9, but a fold has 2 epochs/],
      [{ position: { ...position, epoch: 0 } }, /it has records of 1 epochs, but position\.epoch is 0/],
      [{ position: { ...position, step: Number.NaN } }, /position\.step is not a whole number/],
      [{ position: { ...position, losses: [null] } }, /position\.losses\[0\] is not a number/],
      [{ epochs: {} }, /epochs is not a list/],
      [{ epochs: [{ ...epochs[0], loss: "1" }] }, /epochs\[0\]\.loss is not a number/],
      [{ results: [{ ...results[0], test: undefined }] }, /results\[0\]\.test is not a record/],
      [{ results: [{ ...results[0], fold: 1 }] }, /or they are out of order/],
      [{ results: [...results, ...results] }, /or they are out of order/],
      [{ logs: { "metrics.jsonl": -1 } }, /logs is not a record of sizes/],
    ];
    for (const [change, message] of wrong)
      rejects("BAD_STATE", () => readSavedState({ ...saved, ...change }, settings), message);
  });

  test("is rejected if its counts do not match the data", () => {
    const layout = { stepsPerEpoch: [2, 3], epochs: 2 };
    const state = { ...saved, step: 8 };
    for (const [change, message] of [
      [{ fold: 2 }, /the job has 2 folds/],
      [{ position: { ...saved.position, batch: 4 } }, /an epoch of fold 1 has 3 batches/],
      [{ position: { ...saved.position, step: 5 } }, /its epoch and batch belong to step 4/],
      [{ step: 9 }, /its step is 9, but its fold, epoch and batch belong to step 8/],
    ] as const)
      rejects("BAD_STATE", () => requireLayout({ ...state, ...change }, layout), message);
  });

  test("that does not fit is skipped if older checkpoints are allowed", () => {
    const path = unpackRun("0.1.0", "stopped");
    const copied = new CheckpointStore(join(path, "checkpoints"));
    copied.save({ ...checkpoint, step: 9, state: { ...saved, fold: 7 } });
    rejects("BAD_STATE", () => openJobRun({ path, settings, device: "x" }), /--older-checkpoint/);
    const { resumed } = openJobRun({ path, settings, device: "x", allowOlder: true });
    assert.equal(resumed?.step, 8);
    assert.match(
      resumed.rejected.map(({ name, reason }) => `${name}: ${reason}`).join(),
      /^step-000000009.*fold is 7/,
    );
  });

  test("that was altered is rejected with its file, before anything is written", () => {
    store.save({ ...checkpoint, state: { ...saved, fold: 7 } });
    const before = bytesIn(run);
    rejects(
      "BAD_STATE",
      () => openJobRun({ path: run, settings, device: "x" }),
      /step-000000008\.safetensors: .*fold is 7, but the job has 2 folds/,
    );
    const mean = { ...checkpoint.tensors.get("extra.normaliser.mean")!, dtype: "u8" as const, shape: [3] };
    const tensors = new Map([
      ...checkpoint.tensors,
      ["extra.normaliser.mean", { ...mean, bytes: Uint8Array.of(1, 2, 3) }] as const,
    ]);
    assert.deepEqual(bytesIn(run), before);
    store.save({ ...checkpoint, tensors });
    rejects(
      "BAD_STATE",
      () => openJobRun({ path: run, settings, device: "x" }),
      /step-000000008\.safetensors: .*mean has 0 numbers/,
    );
  });
});
