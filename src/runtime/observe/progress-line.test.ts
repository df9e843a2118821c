/** The progress line, with a fake clock and a terminal that collects strings. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { beat, FakeClock } from "../../units/index.js";
import { Phases } from "./phases.js";
import { ProgressLine } from "./progress-line.js";
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

test("a step is not shown", () => {
  const { clock, written, phases } = terminal();
  phases.run("step", () => {
    clock.advance(60_000);
    beat();
  });
  assert.deepEqual(written, []);
});
