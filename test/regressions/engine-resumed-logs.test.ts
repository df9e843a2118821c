/**
 * S13: after a kill and a resume the weights were right and the logs were not: lines were missing, repeated,
 * or at step 0.
 */

import assert from "node:assert/strict";
import { join } from "node:path";
import { type LogSizes, RunRecorder, readInspection, readSteps } from "../../src/train/index.js";
import { openDevice } from "../support/devices.js";
import { makeFolder } from "../support/folders.js";
import { regressionRow } from "../support/regressions.js";

const { runtime } = openDevice();

/** What happens to the logs at a checkpoint, and what a resume gets. */
interface Logs {
  readonly atCheckpoint: (recorder: RunRecorder) => LogSizes | undefined;
}

/** Records the steps of a range. The incident of an epoch comes after its checkpoint, at the same step. */
function makeSteps(recorder: RunRecorder, from: number, to: number): void {
  for (let step = from; step <= to; step++) {
    const times = { time: step, hostMs: 1 };
    recorder.noteSent({ step, loss: Number.NaN, lr: 0.1, fold: 0, epoch: 0, samples: 8, ...times });
    recorder.noteLoss(1 / step);
  }
}

const noteSkipped = (recorder: RunRecorder): void =>
  recorder.noteIncident("steps not finite", "1 step of epoch 1 changed nothing.");

function recordsIn(folder: string): unknown {
  const { step, loss } = readSteps(join(folder, "steps.bin"));
  return {
    step: [...step],
    loss: [...loss],
    incidents: readInspection(folder).incidents.map((incident) => incident.message),
  };
}

regressionRow<Logs>({
  row: "S13",
  rule: "a run that is killed after a checkpoint and resumed has the logs of an uninterrupted one",
  sound: { atCheckpoint: (recorder) => recorder.sync() },
  faults: {
    "steps are not written before the checkpoint": { atCheckpoint: () => undefined },
    "lines are removed by their step alone": {
      atCheckpoint: (recorder) => {
        recorder.sync();
        return undefined;
      },
    },
  },
  check: ({ atCheckpoint }) => {
    const open = (folder: string, from = 0, sizes?: LogSizes): RunRecorder =>
      new RunRecorder({ folder, runtime, from, sizes, now: () => 1e6 });
    const [whole, killed] = [makeFolder(), makeFolder()];
    const straight = open(whole);
    makeSteps(straight, 1, 3);
    noteSkipped(straight);
    makeSteps(straight, 4, 6);
    straight.close();
    // Never closed, as in a killed process.
    const first = open(killed);
    makeSteps(first, 1, 3);
    const sizes = atCheckpoint(first);
    noteSkipped(first);
    makeSteps(first, 4, 5);
    const second = open(killed, 3, sizes);
    noteSkipped(second);
    makeSteps(second, 4, 6);
    second.close();
    assert.deepEqual(recordsIn(killed), recordsIn(whole));
  },
});
