/** A stall in any driver call is reported in time, naming the call, the phase and the elapsed time. */

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { text } from "node:stream/consumers";
import { after, describe, test } from "node:test";
import { fileURLToPath } from "node:url";
import { type DriverCall, driverCalls, faulty, openCpuDriver, strict } from "holdfast/internals";
import { exitCodes } from "../src/errors/index.js";
import { Phases } from "../src/runtime/observe/phases.js";
import { Recorder } from "../src/runtime/observe/recorder.js";
import { SharedStatus } from "../src/runtime/observe/shared-status.js";
import { type Stall, StallDetector, type StallReport } from "../src/runtime/observe/watchdog/index.js";
import { watched } from "../src/runtime/observe/watched-driver.js";
import { openComponents } from "../src/runtime/open.js";
import { FakeClock } from "../src/units/index.js";
import { everyCall } from "./support/every-call.js";

const limitMs = 30_000;

/** Runs one scripted call of 40 s inside step 7, and returns the stalls that a detector reports meanwhile. */
function stallsOf(call: DriverCall): Stall[] {
  const clock = new FakeClock();
  const sharedStatus = new SharedStatus();
  const phases = new Phases({ sharedStatus, recorder: new Recorder({ clock }), log: () => {}, clock });
  const detector = new StallDetector(sharedStatus, limitMs, clock);
  const stalls: Stall[] = [];
  clock.onTick(() => stalls.push(...[detector.examine()].filter((stall) => stall !== undefined)));
  const machine = openCpuDriver({ threads: 1, maximumBytes: 1 << 20 });
  const device = strict(machine);
  const calls = everyCall(device);
  const script = `the 1st ${call} takes 40s of fake time`;
  const driver = watched(faulty(device, [script], { clock }), sharedStatus, clock);
  phases.run("step", () => calls[call](driver), { number: 7 });
  machine.close();
  return stalls;
}

describe("on the fake clock", () => {
  for (const call of driverCalls) {
    test(`${call} taking 40 s is reported once, between the limit and a second more`, () => {
      const stalls = stallsOf(call);
      assert.equal(stalls.length, 1);
      const [stall] = stalls;
      assert.equal(stall?.call?.call, call);
      assert.deepEqual(
        stall?.phases.map(({ phase, number }) => `${phase} ${number}`),
        ["step 7"],
      );
      assert.ok(stall && stall.stillMs >= limitMs && stall.stillMs <= limitMs + 1000, `${stall?.stillMs} ms`);
    });
  }

  test("a runtime's upload that stalls in its copy names upload, the copy and the 40 s call", () => {
    const clock = new FakeClock();
    const machine = openCpuDriver({ threads: 1 });
    const driver = faulty(strict(machine), ["the 1st copyToDevice takes 40s of fake time"], { clock });
    const components = openComponents(
      { driver, clock, environment: {} },
      { log: () => {}, onMemoryPressure: () => {} },
    );
    const detector = new StallDetector(components.sharedStatus, limitMs, clock);
    const stalls: Stall[] = [];
    clock.onTick(() => stalls.push(...[detector.examine()].filter((stall) => stall !== undefined)));
    const target = components.arena.allocate(16, "input");
    components.phases.run("upload", () =>
      components.transfer.upload([{ source: new Float32Array(4), target }]),
    );
    assert.deepEqual(
      stalls.map((stall) => [stall.phases[0]?.phase, stall.call?.call]),
      [["upload", "copyToDevice"]],
    );
    for (const close of components.closing.reverse()) close();
    machine.close();
  });
});

describe("for real", { concurrency: 2 }, () => {
  const realLimitMs = 500;
  const fixture = fileURLToPath(new URL("./fixtures/stalled-call.js", import.meta.url));
  const folder = mkdtempSync(join(tmpdir(), "holdfast-stalls-"));
  after(() => rmSync(folder, { recursive: true }));

  for (const call of driverCalls) {
    test(`${call} never returning is reported in time and ends the run with exit code 86`, async () => {
      const reportDir = join(folder, call);
      const child = spawn(process.execPath, [fixture, call, String(realLimitMs), reportDir]);
      const [stderr, code] = await Promise.all([
        text(child.stderr),
        new Promise((resolve) => child.once("exit", resolve)),
      ]);
      assert.equal(code, exitCodes.stalled.code, stderr);
      const [file = ""] = readdirSync(reportDir);
      const { what }: StallReport = JSON.parse(readFileSync(join(reportDir, file), "utf8"));
      assert.equal(what.call, call);
      assert.equal(`${what.phase} ${what.number}`, "step 7");
      assert.ok(
        what.elapsedMs >= realLimitMs && what.elapsedMs <= realLimitMs + 1000,
        `${what.elapsedMs} ms`,
      );
      assert.match(
        stderr,
        new RegExp(`^holdfast: stalled: step 7, driver call ${call} has not returned for `),
      );
    });
  }
});
