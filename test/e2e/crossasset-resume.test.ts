/**
 * A CrossAsset run that is killed and resumed leaves the files of one that was not: metrics, steps, plans, incidents and results, times
 * aside. A kill leaves what is in the folder at that moment, so a copy of the folder stands for it.
 */

import assert from "node:assert/strict";
import { cpSync, existsSync, linkSync, mkdirSync, readdirSync, rmSync } from "node:fs";
import { join } from "node:path";
import { before, describe, test } from "node:test";
import { crossasset } from "holdfast";
import { CheckpointStore, readRun } from "../../src/train/index.js";
import { measuredIn, recordsIn, tensorsIn, tinySizes } from "../support/crossasset-runs.js";
import { openDevice } from "../support/devices.js";
import { makeFolder } from "../support/folders.js";
import { rejectsLater } from "../support/rejects.js";
import { testDevice } from "../support/test-device.js";

const onDevice = { skip: testDevice === "emulator" && "minutes of training on an emulator" };
const folder = makeFolder();
/** 28 samples. */
const bars = crossasset.generateBars({ bars: 9002, seed: 42 });
/** One step an epoch: four steps. */
const settings = { ...crossasset.defaultSettings, stride: 40, folds: 2, epochs: 2, batch: 18, ...tinySizes };

interface Trying {
  readonly settings?: crossasset.JobSettings;
  readonly listen?: crossasset.JobListener;
  readonly signal?: AbortSignal;
}

/** Begins or resumes the run in a folder, as the command does. */
async function runIn(path: string, options: Trying = {}): Promise<crossasset.JobResults | undefined> {
  const { settings: own = settings, listen = () => undefined, signal } = options;
  const device = openDevice({ memory: "2GiB", threads: 1 });
  const run = crossasset.openJobRun({ path, settings: { ...own }, device: "x", recordedDevice: device });
  try {
    const results = await crossasset.runJob({
      ...{ device, bars, source: "the generator", cacheFolder: "off", run, settings: own, listen },
      ...(signal && { signal }),
    });
    run.end(results, results ? 0 : 3);
    return results;
  } catch (error) {
    run.fail(error, 1);
    throw error;
  } finally {
    device.close();
  }
}

/** What a kill at this moment would leave; checkpoints never change once they are there, so they are linked. */
function copyRun(from: string, to: string): void {
  mkdirSync(join(to, "checkpoints"), { recursive: true });
  for (const name of readdirSync(join(from, "checkpoints")))
    linkSync(join(from, "checkpoints", name), join(to, "checkpoints", name));
  for (const name of readdirSync(from))
    if (!["checkpoints", "lock.json"].includes(name)) cpSync(join(from, name), join(to, name));
}

describe("a run that is killed", onDevice, () => {
  const whole = join(folder, "whole");
  const killedAfterTest = join(folder, "after-test");
  const killedAfterCheckpoint = join(folder, "after-checkpoint");
  const removed = join(folder, "removed");

  before(async () => {
    const results = await runIn(whole, {
      listen: (event) => {
        if (event.kind === "fold end" && event.step === 2) copyRun(whole, killedAfterTest);
        if (event.kind === "checkpoint" && event.step === 3)
          for (const run of [killedAfterCheckpoint, removed]) copyRun(whole, run);
      },
    });
    assert.ok(results);
    assert.ok(existsSync(killedAfterTest) && existsSync(killedAfterCheckpoint));
  });

  function requireSame(run: string): void {
    assert.deepEqual(recordsIn(run), recordsIn(whole));
    assert.equal(measuredIn(run), measuredIn(whole));
    assert.equal(tensorsIn(run), tensorsIn(whole));
    const { state, step, of, epoch, fold } = readRun(run).status ?? {};
    assert.deepEqual([state, step, of, epoch, fold], ["finished", 4, 4, 1, 1]);
  }

  test("after a fold's test leaves the same files: the test is repeated and recorded once, at its step", async () => {
    await runIn(killedAfterTest);
    requireSame(killedAfterTest);
  });

  test("right after a checkpoint, and stopped before its next step, leaves the same files", async () => {
    const stopped = await runIn(killedAfterCheckpoint, { signal: AbortSignal.abort() });
    assert.equal(stopped, undefined);
    const { status, checkpoints } = readRun(killedAfterCheckpoint);
    assert.deepEqual([status?.state, status?.step, status?.of], ["stopped", 3, 4]);
    assert.equal(checkpoints.at(-1)?.step, 3);
    await runIn(killedAfterCheckpoint);
    requireSame(killedAfterCheckpoint);
  });

  test("and whose folder is removed under it fails with the folder's name", async () => {
    const losing = runIn(removed, {
      listen: (event) => {
        if (event.kind === "phase" && event.phase === "compiling") rmSync(removed, { recursive: true });
      },
    });
    await rejectsLater("RUN_LOST", losing, /removed no longer has run\.json/);
    assert.equal(existsSync(removed), false, "nothing is made in its place");
  });
});

test("a resumed run counts the steps that were skipped before", {
  skip: testDevice !== "cpu" && "the job runs on the CPU",
}, async () => {
  const path = join(folder, "skipping");
  // Two steps an epoch, stopped between those of the second.
  const own = { ...settings, folds: 1, batch: 7 };
  const halt = new AbortController();
  const listen: crossasset.JobListener = (event) => {
    if (event.kind === "step" && event.step === 3) halt.abort();
  };
  assert.equal(await runIn(path, { settings: own, listen, signal: halt.signal }), undefined);
  const store = new CheckpointStore(join(path, "checkpoints"));
  const { name: _, ...checkpoint } = store.load("latest");
  const { position, epochs } = checkpoint.state as unknown as crossasset.ResumedJob;
  const state = {
    ...checkpoint.state,
    position: { ...position, skipped: 2, skippedInEpoch: 1 },
    epochs: epochs.map((epoch) => ({ ...epoch, skipped: 1 })),
  };
  store.save({ ...checkpoint, state });
  await runIn(path, { settings: own });
  const { metrics, status } = readRun(path);
  const last = metrics.findLast((line) => line["epoch"] !== undefined);
  assert.deepEqual([last?.["step"], last?.["skipped"], status?.figures?.skipped], [4, 2, 2]);
  const { incidents } = recordsIn(path) as { readonly incidents: readonly { readonly message: string }[] };
  assert.deepEqual(
    incidents.map(({ message }) => message),
    ["1 step of epoch 2, fold 1, had a gradient that was not finite and was skipped."],
  );
});
