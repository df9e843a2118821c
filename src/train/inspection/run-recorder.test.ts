/** The run recorder: steps get their losses in order, records are read back unchanged, and a resume removes later ones. */

import assert from "node:assert/strict";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, describe, test } from "node:test";
import { openDevice } from "../../../test/support/devices.js";
import { makeFolder } from "../../../test/support/folders.js";
import { openTestDriver } from "../../../test/support/test-device.js";
import { randn, type Tensor } from "../../tensor/index.js";
import { inspectionFiles, legacyIncidentsFile } from "../run-files.js";
import { readInspection } from "./read-inspection.js";
import { RunRecorder } from "./run-recorder.js";
import { readSteps, type StepRow } from "./step-log.js";

describe("the run recorder", () => {
  const driver = openTestDriver({ threads: 2 });
  const device = openDevice({ driver });
  after(() => driver.close());

  const sent = (step: number): StepRow => ({
    ...{ step, time: 1000 * step, loss: Number.NaN, lr: 0.1, fold: 0, epoch: 0, samples: 8, hostMs: 0.5 },
  });
  const open = (folder: string, from = 0): RunRecorder =>
    new RunRecorder({ folder, runtime: device.runtime, from, now: () => 1e6 });

  test("each step gets its own loss, however late it arrives; a step without a loss has NaN", () => {
    const folder = makeFolder();
    const recorder = open(folder);
    let [sentCount, lossCount] = [0, 0];
    // Bursts of all sizes, so that the ring buffer wraps around and grows while it is not empty.
    for (const [steps, losses] of [
      [3, 1],
      [200, 150],
      [400, 90],
      [900, 1200],
      [7, 0],
    ] as const) {
      for (let count = 0; count < steps; count++) recorder.noteSent(sent(++sentCount));
      for (let count = 0; count < losses; count++) recorder.noteLoss(-++lossCount);
    }
    recorder.close();
    const { step, loss, time } = readSteps(join(folder, inspectionFiles.steps));
    assert.equal(step.length, sentCount);
    for (const [index, value] of loss.entries()) {
      assert.equal(step[index], index + 1);
      assert.equal(time[index], 1000 * (index + 1));
      assert.ok(
        Object.is(value, index < lossCount ? -(index + 1) : Number.NaN),
        `loss ${value} of step ${index + 1}`,
      );
    }
  });

  test("plans, memory and incidents are read back as they were recorded, and agree with the device", () => {
    const folder = makeFolder();
    const step = device.compile((x: Tensor) => x.exp().sum());
    step(randn([64], { device }));
    const recorder = open(folder);
    recorder.notePlans(step, { times: true });
    recorder.sampleMemory();
    recorder.noteIncident("over budget", "There is no room.\nlabel  bytes\nweights  5");
    recorder.close();
    const { plans, memory, incidents, messages } = readInspection(folder);
    assert.deepEqual(messages, []);
    assert.equal(plans[0]?.memory.peak, step.memory(randn([64], { device })).peak);
    assert.ok(plans[0]?.calls.every(({ us }) => us !== undefined));
    assert.equal(memory[0]?.used, device.runtime.budget.used);
    assert.deepEqual(
      incidents.map(({ kind, message, details }) => [kind, message, details]),
      [["over budget", "There is no room.", "label  bytes\nweights  5"]],
    );
    step.close();
  });

  test("a run that resumes from an earlier step has no records of later ones", () => {
    const folder = makeFolder();
    const recorder = open(folder);
    for (let step = 1; step <= 10; step++) {
      recorder.noteSent(sent(step));
      recorder.noteLoss(step);
      if (step % 5 === 0) recorder.noteIncident("steps not finite", `at ${step}`);
    }
    recorder.close();
    open(folder, 6).close();
    assert.deepEqual([...readSteps(join(folder, inspectionFiles.steps)).step], [1, 2, 3, 4, 5, 6]);
    assert.deepEqual(
      readInspection(folder).incidents.map(({ message }) => message),
      ["at 5"],
    );
  });

  test("records before a sync survive a kill, and a resume removes the later ones", () => {
    const folder = makeFolder();
    const recorder = open(folder);
    const note = (step: number): void => {
      recorder.noteSent(sent(step));
      recorder.noteLoss(step);
    };
    for (const step of [1, 2, 3]) note(step);
    const sizes = recorder.sync();
    const steps = (): number[] => [...readSteps(join(folder, inspectionFiles.steps)).step];
    assert.deepEqual(steps(), [1, 2, 3], "no row waits in memory");
    // At the step of the checkpoint, like the incidents after an epoch.
    recorder.noteIncident("steps not finite", "after the checkpoint");
    note(4);
    recorder.close();
    new RunRecorder({ folder, runtime: device.runtime, from: 3, sizes }).close();
    assert.deepEqual(steps(), [1, 2, 3]);
    assert.deepEqual(readInspection(folder).incidents, []);
  });

  test("incidents of 0.1.0 are read with the new ones, and a resume truncates both", () => {
    const folder = makeFolder();
    const lineAt = (step: number): string => {
      const record = { kind: "capture refused", time: step, step, message: `at ${step}`, phases: [] };
      return `${JSON.stringify(record)}\n`;
    };
    writeFileSync(join(folder, legacyIncidentsFile), lineAt(1) + lineAt(2) + lineAt(3));
    const kinds = (): string[][] =>
      readInspection(folder).incidents.map(({ kind, message }) => [kind, message]);
    const sizes = { [legacyIncidentsFile]: lineAt(1).length + lineAt(2).length };
    const resumed = new RunRecorder({ folder, runtime: device.runtime, from: 3, sizes, now: () => 1e6 });
    resumed.noteIncident("failure", "new");
    resumed.close();
    const legacy = ["capture rejected", "at 1"];
    assert.deepEqual(kinds(), [legacy, ["capture rejected", "at 2"], ["failure", "new"]]);
    open(folder, 1).close();
    assert.deepEqual(kinds(), [legacy]);
  });

  test("a plan is written once, even if a resumed run makes it again", () => {
    const folder = makeFolder();
    const lines = (): number =>
      readFileSync(join(folder, inspectionFiles.plans), "utf8").trimEnd().split("\n").length;
    const step = device.compile((x: Tensor) => x.exp().sum());
    const first = open(folder);
    step(randn([64], { device }));
    first.notePlans(step);
    step(randn([32], { device }));
    first.notePlans(step);
    assert.equal(lines(), 2);
    const sizes = first.sync();
    first.close();
    const again = new RunRecorder({ folder, runtime: device.runtime, from: 5, sizes });
    again.notePlans(step);
    again.close();
    assert.equal(lines(), 2);
    step.close();
  });
});
