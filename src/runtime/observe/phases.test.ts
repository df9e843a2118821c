/** Phases: in the shared status while they last, in the log and the recorder with entry and exit. */

import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { HoldfastError } from "../../errors/index.js";
import { FakeClock } from "../../units/index.js";
import { Phases, phaseTitle } from "./phases.js";
import { Recorder } from "./recorder.js";
import { SharedStatus } from "./shared-status.js";

function engine() {
  const clock = new FakeClock();
  const sharedStatus = new SharedStatus();
  const recorder = new Recorder({ clock });
  const lines: string[] = [];
  const phases = new Phases({ sharedStatus, recorder, clock, log: (line) => lines.push(line) });
  return { clock, sharedStatus, recorder, lines, phases };
}

describe("phases", () => {
  it("log their entry, their exit and the elapsed time", () => {
    const { clock, lines, phases } = engine();
    phases.run("step", () => clock.advance(1500), { number: 12 });
    assert.deepEqual(lines, ["step 12: entered", "step 12: exited after 1.5s, done"]);
  });

  it("exit on an exception, and log its code and message", () => {
    const { sharedStatus, lines, phases } = engine();
    const rejection = new HoldfastError("OUT_OF_BUDGET", "No room for weights.");
    const fail = () => {
      throw rejection;
    };
    assert.throws(() => phases.run("upload", fail, { label: "weights" }), rejection);
    assert.deepEqual(sharedStatus.openPhases(), []);
    assert.equal(
      lines.at(-1),
      "upload (weights): exited after 0ms, failed: OUT_OF_BUDGET No room for weights.",
    );
  });

  it("are in the shared status while they last, also if nested", () => {
    const { sharedStatus, phases } = engine();
    const titles = () => sharedStatus.openPhases().map(({ phase, number }) => phaseTitle(phase, number));
    phases.run(
      "step",
      () => {
        phases.run("read-back", () => assert.deepEqual(titles(), ["step 2", "read-back"]));
        assert.deepEqual(titles(), ["step 2"]);
      },
      { number: 2 },
    );
    assert.deepEqual(titles(), []);
  });

  it("return the result of their function", () => {
    assert.equal(
      engine().phases.run("plan", () => 42),
      42,
    );
  });

  it("are in the recorder with their step", () => {
    const { sharedStatus, recorder, phases } = engine();
    phases.run("step", () => {}, { number: 5 });
    assert.equal(sharedStatus.step, 5);
    assert.deepEqual(
      recorder.recent().map(({ kind, label, step }) => ({ kind, label, step })),
      [
        { kind: "phase-enter", label: "step", step: 5 },
        { kind: "phase-exit", label: "step", step: 5 },
      ],
    );
  });

  it("add nothing to the label table with more steps", () => {
    const { recorder, phases } = engine();
    phases.run("step", () => {}, { number: 1 });
    const labels = recorder.labels.count;
    for (let number = 2; number < 10_000; number++) phases.run("step", () => {}, { number });
    assert.equal(recorder.labels.count, labels);
  });

  it("last until an asynchronous function succeeds or fails", async () => {
    const { sharedStatus, lines, phases } = engine();
    const depths: number[] = [];
    const work = async () => {
      await Promise.resolve();
      depths.push(sharedStatus.openPhases().length);
      throw new TypeError("not a number");
    };
    await assert.rejects(phases.runAsync("init", work), TypeError);
    assert.deepEqual(depths, [1]);
    assert.deepEqual(sharedStatus.openPhases(), []);
    assert.equal(lines.at(-1), "init: exited after 0ms, failed: TypeError not a number");
    assert.equal(await phases.runAsync("init", async () => "up"), "up");
  });

  it("reject an asynchronous function in run()", () => {
    const { sharedStatus, phases } = engine();
    assert.throws(() => phases.run("step", async () => {}), { code: "BAD_ARGUMENT", message: /runAsync/ });
    assert.deepEqual(sharedStatus.openPhases(), []);
  });

  it("exit if the log fails", () => {
    const sharedStatus = new SharedStatus();
    const log = () => {
      throw new Error("disk full");
    };
    const phases = new Phases({ sharedStatus, recorder: new Recorder(), log });
    assert.throws(() => phases.run("init", () => {}), /disk full/);
    assert.deepEqual(sharedStatus.openPhases(), []);
  });
});
