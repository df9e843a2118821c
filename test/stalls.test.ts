/** A stall in any driver call is reported in time, naming the call, the phase and the elapsed time. */

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { text } from "node:stream/consumers";
import { describe, test } from "node:test";
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
import { effort } from "./support/effort.js";
import { everyCall } from "./support/every-call.js";
import { makeFolder } from "./support/folders.js";
import { shortRunFlags } from "./support/short-process.js";

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

describe("for real", () => {
  const realLimitMs = 150;
  const fixture = fileURLToPath(new URL("./fixtures/stalled-call.js", import.meta.url));

  /** Runs a program whose calls return once they have been reported, and whose last call never returns. */
  async function stall(reportedCalls: readonly DriverCall[], endingCalls: readonly DriverCall[]) {
    const reportDir = makeFolder();
    const calls = [reportedCalls.join(), ...endingCalls];
    const flags = [...shortRunFlags, fixture, String(realLimitMs), reportDir];
    const child = spawn(process.execPath, [...flags, ...calls]);
    const [stderr, [code]] = await Promise.all([text(child.stderr), once(child, "exit")]);
    const reports = readdirSync(reportDir)
      .filter((file) => file.endsWith(".json"))
      .map((file): StallReport => JSON.parse(readFileSync(join(reportDir, file), "utf8")));
    for (const { what } of reports) {
      assert.equal(`${what.phase} ${what.number}`, "step 7");
      assert.ok(
        what.elapsedMs >= realLimitMs && what.elapsedMs <= realLimitMs + 1000,
        `${what.call}: ${what.elapsedMs} ms`,
      );
      const line = `^holdfast: stalled: step 7, driver call ${what.call} has not returned for `;
      assert.match(stderr, new RegExp(line, "m"));
    }
    return { code, stderr, reported: reports.map(({ what }) => what.call).sort() };
  }

  const reportedCalls = effort<readonly DriverCall[]>({
    quick: ["launch", "copyToDevice", "synchronizeEvent"],
    thorough: driverCalls,
  });

  test("calls that do not return are reported in time, and one that never returns ends the run with exit code 86", async () => {
    const { code, stderr, reported } = await stall(reportedCalls, ["synchronize"]);
    assert.equal(code, exitCodes.stalled.code, stderr);
    assert.deepEqual(reported, [...reportedCalls, "synchronize"].sort());
  });

  for (const call of effort<readonly DriverCall[]>({ quick: [], thorough: driverCalls })) {
    test(`${call} never returning is reported in time and ends the run with exit code 86`, async () => {
      const { code, stderr, reported } = await stall([], [call]);
      assert.equal(code, exitCodes.stalled.code, stderr);
      assert.deepEqual(reported, [call]);
    });
  }

  for (const calls of effort<readonly (readonly DriverCall[])[]>({ quick: [], thorough: [reportedCalls] })) {
    test("a run whose calls return late ends with exit code 0", async () => {
      const { code, stderr, reported } = await stall(calls, []);
      assert.equal(code, 0, stderr);
      assert.deepEqual(reported, [...calls].sort());
    });
  }
});
