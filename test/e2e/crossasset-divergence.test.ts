/** A CrossAsset training that diverges ends as that: with its own exit code, status and health, and its model gives no answers. */

import assert from "node:assert/strict";
import { join } from "node:path";
import { after, test } from "node:test";
import { crossasset } from "holdfast";
import { exitCodes } from "../../src/errors/index.js";
import { healthOf, readInspection, readRun } from "../../src/train/index.js";
import { startCommandHost } from "../support/command-host.js";
import { jobEnvironment, tinyModel } from "../support/crossasset-runs.js";
import { openDevice } from "../support/devices.js";
import { makeFolder } from "../support/folders.js";
import { rejects } from "../support/rejects.js";
import { testDevice } from "../support/test-device.js";

const folder = makeFolder();

// The program takes a second to load: one process runs both commands.
const host = startCommandHost(folder, jobEnvironment);
after(() => host.close());

test("a learning rate of 1e30 is an outcome of its own", {
  skip: testDevice !== "cpu" && "the job runs on the CPU",
}, async () => {
  const job = ["train", "crossasset", "--device", "cpu", "--generate", "9000", "--folds", "1", ...tinyModel];
  const args = [...job, "--batch", "64", "--epochs", "4", "--lr", "1e30", "--quiet", "--out", "run"];
  const { status: code, stderr } = await host.run(args);
  assert.equal(code, exitCodes.diverged.code, stderr);
  assert.match(
    stderr,
    /^holdfast: DIVERGED: Fold 1, epoch 2: 1 of 1 steps were skipped[^\n]* smaller one[^\n]*\n$/,
  );

  const run = join(folder, "run");
  const { status, checkpoints, metrics } = readRun(run);
  assert.deepEqual([status?.state, status?.exitCode, status?.step], ["diverged", exitCodes.diverged.code, 2]);
  assert.deepEqual(
    checkpoints.map(({ step }) => step),
    [1],
    "the epoch that shows it is not saved",
  );
  assert.equal(metrics.length, 2);
  assert.ok(
    readInspection(run).incidents.some(({ message }) => message.startsWith("DIVERGED: Fold 1, epoch 2")),
  );
  assert.equal(crossasset.stateOfRun(run), "diverged");

  const { state, reason, exitCode } = healthOf(run);
  assert.deepEqual([state, exitCode], ["diverged", 1]);
  assert.match(reason, /^It diverged at step 2: Fold 1, epoch 2: /);

  const again = await host.run(args);
  assert.equal(again.status, exitCodes.diverged.code, "it is not trained again");
  assert.match(
    again.stderr,
    /^holdfast: DIVERGED: The run in run diverged, and resuming it would not help\./,
  );

  const device = openDevice({ threads: 1 });
  const model = crossasset.openTrainedModel(device, run);
  const bars = crossasset.generateBars({ bars: 8000, seed: 7 });
  const told = /The model of step 1 in .*run gives predictions that are not finite/;
  rejects("NOT_FINITE", () => model.predict(bars, () => assert.fail("an answer"), { stride: 600 }), told);
  rejects("NOT_FINITE", () => model.evaluate(bars, { stride: 600 }), told);
  device.close();
});
