/**
 * Regressions: a watchdog that hung with its run (H13). Regressions of Holdfast itself: a watchdog that ended good runs (S5), and an
 * unhandled signal (S6).
 *
 * @mostlyWaits for the limits of watched processes
 */

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { text } from "node:stream/consumers";
import { Device, nn, optim, randn } from "holdfast";
import { exitCodes } from "../../src/errors/index.js";
import { Phases } from "../../src/runtime/observe/phases.js";
import { Recorder } from "../../src/runtime/observe/recorder.js";
import { SharedStatus } from "../../src/runtime/observe/shared-status.js";
import { type Stall, StallDetector, type StallReport } from "../../src/runtime/observe/watchdog/index.js";
import { beatCounter, FakeClock, listenToBeats } from "../../src/units/index.js";
import { makeFolder } from "../support/folders.js";
import { plainEnvironment } from "../support/plain-environment.js";
import { regressionRow } from "../support/regressions.js";
import { repositoryRoot } from "../support/repository.js";

const limitMs = 30_000;

/**
 * Compiles a training step and runs it once, on a machine so slow that two beats are 20 s apart. Returns the
 * stalls that a detector reports meanwhile.
 */
function stallsOfSlowStep(beats: () => number): Stall[] {
  const clock = new FakeClock();
  const sharedStatus = new SharedStatus();
  const phases = new Phases({ sharedStatus, recorder: new Recorder({ clock }), clock });
  const detector = new StallDetector(sharedStatus, limitMs, clock, { beats });
  const stalls: Stall[] = [];
  clock.onTick(() => stalls.push(...[detector.examine()].filter((stall) => stall !== undefined)));
  const cpu = new Device("cpu", { memory: "64MiB", threads: 1, stallAfter: "off" });
  const model = new nn.Sequential(new nn.Linear(8, 8), new nn.ReLU(), new nn.Linear(8, 8)).to(cpu);
  const optimizer = new optim.AdamW(model.parameters());
  const step = cpu.compile((x) => {
    model.forward(x).square().mean().backward();
    optimizer.step();
    optimizer.zeroGrad();
  });
  const input = randn([4, 8], { device: cpu });
  try {
    phases.run("compile", () => {
      listenToBeats(() => clock.advance(20_000));
      step(input);
      cpu.runtime.synchronize();
    });
  } finally {
    listenToBeats(undefined);
    cpu.close();
  }
  return stalls;
}

regressionRow<() => number>({
  row: "S5",
  rule: "tracing, planning, compiling and CPU kernels send heartbeats, and are not reported as stalls however long they take",
  sound: beatCounter(),
  faults: { "a watchdog that counts only driver calls and phases": () => 0 },
  check: (beats) => assert.deepEqual(stallsOfSlowStep(beats), []),
});

/** Runs a script of the fixtures, and calls a function once it has begun. */
async function runFixture(
  name: string,
  args: readonly string[],
  onStarted: (kill: (signal: NodeJS.Signals) => void) => void = () => undefined,
) {
  const script = join(repositoryRoot, "dist/test/fixtures", name);
  const child = spawn(process.execPath, [script, ...args], { env: plainEnvironment });
  child.stdout.once("data", () => onStarted((signal) => child.kill(signal)));
  const [stdout, stderr, [code]] = await Promise.all([
    text(child.stdout),
    text(child.stderr),
    once(child, "exit") as Promise<[number | null]>,
  ]);
  return { code, stdout, stderr };
}

interface Ended {
  readonly code: number | null;
  readonly stderr: string;
  readonly reports: readonly StallReport[];
}

const hungSteps = new Map<string, Promise<Ended>>();

/** How a process whose third step never ends has ended under this watcher; both rows look at the same process. */
function endOfHungStep(watcher: string): Promise<Ended> {
  const ended = hungSteps.get(watcher) ?? runHungStep(watcher);
  hungSteps.set(watcher, ended);
  return ended;
}

async function runHungStep(watcher: string): Promise<Ended> {
  const folder = makeFolder();
  const { code, stderr } = await runFixture("hung-step.js", [watcher, folder]);
  const reports = readdirSync(folder)
    .filter((name) => name.endsWith(".json"))
    .map((name): StallReport => JSON.parse(readFileSync(join(folder, name), "utf8")));
  return { code, stderr, reports };
}

regressionRow<string>({
  row: "H13",
  rule: "a step that spins for ever is named by a second thread and ended, with exit code 86, by an outside process",
  sound: "outside, ending",
  faults: { "a watchdog in the hanging thread": "same thread" },
  check: async (watcher) => {
    const { code, stderr, reports } = await endOfHungStep(watcher);
    assert.equal(code, exitCodes.stalled.code, stderr);
    assert.equal(reports.length, 1);
    const [{ what, noticedBy, ending, notes }] = reports as [StallReport];
    assert.deepEqual([what.phase, what.number, what.call], ["step", 3, null]);
    assert.deepEqual([noticedBy, ending], ["thread", "exit"]);
    // If the thread had to end the run without its outside process, the report would have a note. On a slow machine that may be late.
    assert.deepEqual(
      notes.filter((note) => !/did not act on the report within/.test(note)),
      [],
    );
    assert.match(stderr, /^holdfast: stalled: step 3 .*has made no progress for/);
  },
});

regressionRow<string>({
  row: "S5",
  rule: "in a user's program, a stall is reported and the program continues to its end",
  sound: "outside",
  faults: { "a library that ends its host": "outside, ending" },
  check: async (watcher) => {
    const { code, stderr, reports } = await endOfHungStep(watcher);
    assert.equal(code, 0, stderr);
    assert.match(stderr, /^holdfast: stalled: step 3 .*has made no progress for/);
    assert.equal(reports.length, 1);
  },
});

/** How a program listens for signals, and for how many milliseconds each of its steps is busy. */
type BusyProgram = readonly [listener: string, busyMs: string];

regressionRow<BusyProgram>({
  row: "S6",
  rule: "SIGTERM ends a run in time while its main thread is busy",
  // Ten minutes: a slow machine may end the run seconds late, but not after the step. The fault waits for its step.
  sound: ["stopOnSignals", "600000"],
  faults: { "a handler on the main thread": ["handlers", "1000"] },
  check: async ([listener, busyMs]) => {
    const args = [listener, "1000", busyMs];
    const { code, stdout, stderr } = await runFixture("busy-trainer.js", args, (kill) => kill("SIGTERM"));
    // The run did not wait for its step.
    assert.deepEqual([code, stdout], [143, "busy\n"]);
    assert.equal(stderr, "holdfast: stopped: still busy 500ms after SIGTERM.\n");
  },
});
