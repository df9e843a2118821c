/** The stall report as a record and as text. */

import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { driverCalls } from "../../../driver/index.js";
import { FakeClock, GiB, MiB } from "../../../units/index.js";
import { Phases } from "../phases.js";
import { Recorder } from "../recorder.js";
import { arenaFigures, budgetLabels, SharedStatus } from "../shared-status.js";
import { takeReading } from "./reading.js";
import { type StallReport, stallReport } from "./report.js";
import { stallReportText } from "./report-text.js";
import { StallDetector } from "./stall.js";

type Found = Parameters<typeof stallReport>[0];

/** A report of an engine in step 12, with the given driver call open. */
function report(call: "in a call" | "in no call", found: Partial<Found> = {}): StallReport {
  const clock = new FakeClock();
  const sharedStatus = new SharedStatus();
  const recorder = new Recorder({ clock });
  const { labels } = recorder;
  const phases = new Phases({ sharedStatus, recorder, clock, log: () => {} });
  sharedStatus.budgetLimit = 64 * GiB;
  sharedStatus.budgetUsed[budgetLabels.indexOf("weights")] = GiB;
  sharedStatus.budgetUsed[budgetLabels.indexOf("moments")] = 2 * GiB;
  sharedStatus.arena[arenaFigures.indexOf("capacity")] = 512 * MiB;
  return phases.run(
    "step",
    () => {
      for (let count = 0; count < 40; count++) recorder.record("allocate", "matmul", 0, 256);
      sharedStatus.op = labels.idOf("matmul");
      if (call === "in a call") sharedStatus.enterCall(driverCalls.indexOf("synchronize"), clock.nowMs());
      clock.advance(30_200);
      const detector = new StallDetector(sharedStatus, 60_000, clock);
      detector.examine();
      return stallReport({
        kind: "stall",
        pid: 9,
        noticedBy: "thread",
        elapsedMs: 30_200,
        limitMs: 30_000,
        reading: takeReading({ sharedStatus, labels, recorder }, detector.activity!),
        process: { threads: [] },
        ending: "exit",
        notes: [],
        time: new Date(0),
        ...found,
      });
    },
    { number: 12 },
  );
}

const firstLine = (from: StallReport) => stallReportText(from, "/runs/stall.json").split("\n")[0];

describe("a stall report", () => {
  it("is unchanged by a JSON round trip", () => {
    const record = report("in a call");
    assert.deepEqual(JSON.parse(JSON.stringify(record)), record);
  });

  it("names phase, number, call, op, step and times", () => {
    const { phases, ...what } = report("in a call").what;
    assert.deepEqual(what, {
      kind: "stall",
      phase: "step",
      number: 12,
      call: "synchronize",
      op: "matmul",
      step: 12,
      elapsedMs: 30_200,
      limitMs: 30_000,
    });
    assert.deepEqual(phases, [{ title: "step 12", phase: "step", number: 12, openMs: 30_200 }]);
  });

  it("holds the budget by label, the arena and the last 32 events", () => {
    const { budget, arena, events } = report("in a call");
    assert.equal(budget?.limit, 64 * GiB);
    assert.equal(budget?.used.moments, 2 * GiB);
    assert.equal(arena?.capacity, 512 * MiB);
    assert.equal(events.length, 32);
    assert.equal(events.at(-1)?.label, "matmul");
  });

  it("opens its text with the sentence that names the call", () => {
    assert.equal(
      firstLine(report("in a call")),
      "holdfast: stalled: step 12, driver call synchronize (last op matmul) has not returned for 30.2s (limit 30s)",
    );
  });

  it("opens its text with the phase if no call is open", () => {
    assert.equal(
      firstLine(report("in no call")),
      "holdfast: stalled: step 12 (last op matmul) has made no progress for 30.2s (limit 30s)",
    );
  });

  it("names the last phase of a silent process", () => {
    assert.equal(
      firstLine(report("in no call", { kind: "silence" })),
      "holdfast: stalled: process 9 has sent no heartbeat for 30.2s (limit 30s); the last one was in step 12 (last op matmul)",
    );
    assert.match(
      firstLine(report("in no call", { kind: "silence", reading: undefined })) ?? "",
      /the last one was in no phase$/,
    );
  });

  it("shows the holders by size, the file, the ending, the notes and the advice", () => {
    const text = stallReportText(report("in a call", { notes: ["it rained"] }), "/runs/stall.json");
    assert.match(text, /budget +3 GiB of 64 GiB, moments 2 GiB, weights 1 GiB/);
    assert.match(text, /arena +capacity 512 MiB/);
    assert.match(text, /note +it rained/);
    assert.match(text, /report +\/runs\/stall\.json/);
    assert.match(text, /ending +.*exit code 86/);
    assert.match(text, /HOLDFAST_STALL_AFTER \(now 30s\)/);
  });

  it("shows threads with the same state in one row, the main thread separately, and advises on a thread inside the kernel", () => {
    const waiting = { name: "pool", state: "S", waitChannel: "futex_do_wait" };
    const threads = [
      { id: 9, name: "node", state: "D", waitChannel: "nv_ioctl", systemCall: 16 },
      { id: 10, ...waiting },
      { id: 11, ...waiting },
    ];
    const process = { threads, memoryPressure: ["some avg10=1.50 avg60=0.10 total=9"] };
    const text = stallReportText(report("in a call", { process }), "");
    assert.match(text, /node \(main\): D inside the kernel in nv_ioctl, system call 16\n/);
    assert.match(text, /pool: S sleeping in futex_do_wait \(2 threads\)\n/);
    assert.match(text, /pressure some 1\.50%\n/);
    assert.match(text, /look at +the thread in state D/);
  });
});
