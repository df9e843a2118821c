/** The progress line, with a fake clock and a terminal that collects strings. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { beat, FakeClock } from "../../units/index.js";
import { Phases } from "./phases.js";
import { ProgressLine, ProgressLog } from "./progress-line.js";
import { Recorder } from "./recorder.js";
import { SharedStatus } from "./shared-status.js";

function terminal(columns = 80) {
  const clock = new FakeClock();
  const written: string[] = [];
  const write = (text: string): void => void written.push(text);
  const progress = new ProgressLine({ write, clock, columns: () => columns });
  const phases = new Phases({
    sharedStatus: new SharedStatus(),
    recorder: new Recorder({ clock }),
    clock,
    progress,
  });
  return { clock, written, phases };
}

const erased = "\r\u001b[K";

test("work that takes less than two seconds is not shown", () => {
  const { clock, written, phases } = terminal();
  phases.run("compile", () => {
    clock.advance(1900);
    beat("fuse", 3, 9);
  });
  assert.deepEqual(written, []);
});

test("longer work is one line with phase, stage, counts and time, erased when the work ends", () => {
  const { clock, written, phases } = terminal();
  phases.run(
    "compile",
    () => {
      beat("fuse", 3, 9);
      clock.advance(2500);
      beat();
      beat();
      clock.advance(500);
      phases.run("capture", () => beat());
      clock.advance(500);
      beat("verify");
    },
    { label: "train" },
  );
  beat("after the end");
  assert.deepEqual(written, [
    "\rholdfast: compile (train): fuse 3/9, 2.5s\u001b[K",
    "\rholdfast: capture, 3s\u001b[K",
    "\rholdfast: compile (train): verify, 3.5s\u001b[K",
    erased,
  ]);
});

test("the line is erased when the work fails, and fits the terminal", () => {
  const { clock, written, phases } = terminal(20);
  assert.throws(() =>
    phases.run("plan", () => {
      clock.advance(3000);
      beat("a stage with a long name");
      assert.fail("no plan");
    }),
  );
  assert.deepEqual(written, ["\rholdfast: plan: a s\u001b[K", erased]);
});

test("a log has a line every two seconds for a stage that counts its items", () => {
  const clock = new FakeClock();
  const lines: string[] = [];
  const log = (line: string): void => void lines.push(line);
  const phases = new Phases({
    ...{ sharedStatus: new SharedStatus(), recorder: new Recorder({ clock }), clock, log },
    progress: new ProgressLog({ log, clock }),
  });
  const compile = (): void => {
    for (let kernel = 1; kernel <= 44; kernel++) {
      clock.advance(100);
      beat("kernels", kernel, 44);
    }
    clock.advance(5000);
    beat("verify");
    phases.run(
      "compile",
      () => {
        clock.advance(2000);
        beat("GEMMs", 12, 18);
      },
      { label: "GEMMs" },
    );
  };
  phases.run("compile", compile, { label: "train" });
  beat("kernels", 1, 2);
  assert.deepEqual(lines, [
    "compile (train): entered",
    "compile (train): kernels 20/44, 2s",
    "compile (train): kernels 40/44, 4s",
    "compile (GEMMs): entered",
    "compile (GEMMs): GEMMs 12/18, 11.4s",
    "compile (GEMMs): exited after 2s, done",
    "compile (train): exited after 11.4s, done",
  ]);
});

test("a step is not shown", () => {
  const { clock, written, phases } = terminal();
  phases.run("step", () => {
    clock.advance(60_000);
    beat();
  });
  assert.deepEqual(written, []);
});
