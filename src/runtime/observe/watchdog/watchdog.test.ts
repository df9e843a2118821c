/**
 * The watchdog with real processes, because threads that do not respond cannot be simulated.
 *
 * @mostlyWaits for the limits of watched processes
 */

import assert from "node:assert/strict";
import { type ChildProcessByStdio, spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { basename, join } from "node:path";
import type { Readable, Writable } from "node:stream";
import { text } from "node:stream/consumers";
import { afterEach, beforeEach, describe, it } from "node:test";
import { setTimeout as passed } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { isThorough } from "../../../../test/support/effort.js";
import { plainEnvironment } from "../../../../test/support/plain-environment.js";
import { generousTimeoutMs } from "../../../../test/support/timeouts.js";
import { exitCodes } from "../../../errors/index.js";
import { systemClock } from "../../../units/index.js";
import { openRuntime } from "../../runtime.js";
import { Phases } from "../phases.js";
import { Recorder } from "../recorder.js";
import { SharedStatus } from "../shared-status.js";
import type { StallReport } from "./report.js";
import { StallDetector } from "./stall.js";
import { startWatchdog } from "./watchdog.js";

const limitMs = 300;
const fixture = fileURLToPath(new URL("../../../../test/fixtures/watched-run.js", import.meta.url));
const watchdogScript = fileURLToPath(new URL("./watchdog-process.js", import.meta.url));
const needsProc = existsSync("/proc/self/cmdline") ? false : "needs /proc";

describe("the watchdog", () => {
  let reportDir: string;
  beforeEach(() => {
    reportDir = mkdtempSync(join(tmpdir(), "holdfast-watchdog-"));
  });
  afterEach(() => rmSync(reportDir, { recursive: true }));

  it("reports a busy program without ending it, survives signals to its process group, names the driver call that blocks, and ends the run in time", {
    skip: needsProc,
  }, async () => {
    const run = start("ends it", [
      ...["waits until it is told to continue", "busy between two phases", "blocked in synchronize"],
    ]);
    await run.begun(1);
    for (const pid of outsideProcesses(1))
      for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"]) process.kill(pid, signal);
    run.child.stdin.end("go on");
    const { code, stderr } = await run.end;
    assert.equal(code, exitCodes.stalled.code);
    const [first, second] = reports(2);
    assert.ok(first && second);
    assert.deepEqual([first.what.kind, first.what.phase, first.ending], ["program", null, "none"]);
    assert.match(stderr, /^holdfast: stalled: the program's own code has blocked the event loop for /);
    const { phase, number, call, op, elapsedMs } = second.what;
    // Time in which the watchdog itself did not run does not count.
    assert.ok(elapsedMs >= limitMs && elapsedMs <= limitMs + 1000, `${elapsedMs} ms`);
    assert.deepEqual([phase, number, call, op], ["step", 3, "synchronize", "matmul"]);
    assert.equal(second.ending, "exit");
    // On a slow machine the outside process may be late.
    assert.deepEqual(
      second.notes.filter((note) => !/did not act on the report within/.test(note)),
      [],
    );
    assert.match(stderr, /step 3, driver call synchronize \(last op matmul\) has not returned/);
    assert.ok(second.process.threads.some(({ id, name }) => id === run.child.pid && name.length > 0));
  });

  it("reports a lost outside process, names the write of a file that a run is blocked in, and still ends the run", {
    skip: needsProc,
  }, async () => {
    const run = start("ends it", ["waits until it is told to continue", "blocked in a write of a file"]);
    await run.begun(1);
    for (const pid of outsideProcesses(1)) process.kill(pid, "SIGKILL");
    run.child.stdin.end("go on");
    const { code, stderr } = await run.end;
    assert.equal(code, exitCodes.stalled.code);
    const [report] = reports(1);
    assert.equal(report?.what.phase, "disk-write");
    assert.match(stderr, /^holdfast: stalled: disk-write has made no progress for .*look at +the disk: /s);
    assert.match(report?.notes.join() ?? "", /outside process ended early \(SIGKILL\)/);
  });

  // Only in test:long. In npm test, the test after these two and the spinning process of regressions/engine-watch.test.ts cover them.
  if (isThorough) {
    it("ends a run that is busy in step 3", async () => {
      const { code, stderr } = await start("ends it", ["busy in step 3"]).end;
      assert.equal(code, exitCodes.stalled.code);
      assert.match(
        stderr,
        /^holdfast: stalled: step 3 \(last op matmul\) has made no progress for \d+ms \(limit 300ms\)\n/,
      );
      const [report] = reports(1);
      assert.deepEqual([report?.what.call, report?.ending], [null, "exit"]);
      // Time in which the loop waited for a processor does not count.
      assert.ok((report?.what.elapsedMs ?? 0) <= limitMs + 1000, `${report?.what.elapsedMs} ms`);
    });

    it("ends a run whose stall begins before the watchdog's thread has started", async () => {
      const { code } = await start("ends it, and is still starting", ["blocked in step 3"]).end;
      assert.equal(code, exitCodes.stalled.code);
      assert.equal(reports(1)[0]?.what.number, 3);
    });
  }

  it("with onStall report: reports each stall once, is silent for working, stopped and debugged runs, and leaves no process", {
    skip: needsProc,
  }, async () => {
    const run = start(
      "lets it continue, and is still starting",
      [
        "stalls in step 3 and goes on",
        "stalls in step 4 and goes on",
        "closes its watchdog",
        "waits until it is told to continue",
        "is watched again, to be ended",
        "makes steps until it is told to continue",
        "works on, with beats",
        "works on, with beats, next to busy threads",
        "is held by a debugger",
      ],
      // Nothing is printed when the debugger's port is opened.
      ["--inspect-publish-uid=http"],
    );
    await run.begun(3);
    await until(() => outsideProcesses().length === 0);
    run.child.stdin.write("go on");
    await run.begun(4);
    outsideProcesses(1);
    run.child.kill("SIGSTOP");
    // Real time, because a stopped process gets none.
    await passed(4 * limitMs);
    run.child.kill("SIGCONT");
    await passed(2 * limitMs);
    run.child.stdin.end("go on");
    const { code, stderr, begunMs } = await run.end;
    assert.deepEqual([code, begunMs.length], [0, 7], stderr);
    await until(() => outsideProcesses().length === 0);

    assert.deepEqual(
      reports(2).map(({ what, ending }) => [what.number, what.op, ending]),
      [
        [3, "matmul", "none"],
        [4, "matmul", "none"],
      ],
    );
    const lines = stderr.split("\n").filter((line) => !/^( |$)/.test(line));
    assert.equal(lines.length, 2, stderr);
    for (const [index, line] of lines.entries())
      assert.match(
        line,
        new RegExp(
          `^holdfast: stalled: step ${index + 3} \\(last op matmul\\) has made no progress for \\d+ms \\(limit 300ms\\)$`,
        ),
      );
    assert.match(
      stderr,
      /the process keeps running; to end it on a stall, start it with HOLDFAST_ON_STALL=end/,
    );
  });

  it("reports and kills from outside a process whose watchdog thread is silent", async () => {
    const silent = `
      const settings = { pid: process.pid, ...JSON.parse(process.argv[2]) };
      const outside = require("node:child_process").spawn(
        process.execPath, [process.argv[1], JSON.stringify(settings)], { stdio: ["pipe", "pipe", "inherit"] },
      );
      outside.stdout.once("data", () => Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0));
    `;
    const settings = JSON.stringify({ stallAfterMs: limitMs, reportDir, onStall: "end" });
    const child = spawn(process.execPath, ["-e", silent, watchdogScript, settings], {
      env: plainEnvironment,
    });
    const { signal, stderr } = await endOf(child);
    assert.equal(signal, "SIGKILL");
    const [report] = reports(1);
    assert.equal(report?.what.kind, "silence");
    assert.equal(report?.noticedBy, "outside process");
    assert.match(stderr, /has sent no heartbeat for/);
  });

  it("treats a pipe closed without a goodbye as the death of the thread", async () => {
    const settings = { pid: process.pid, stallAfterMs: limitMs, reportDir, onStall: "report" };
    const outside = spawn(process.execPath, [watchdogScript, JSON.stringify(settings)], {
      stdio: ["pipe", "ignore", "pipe"],
    });
    outside.stdin.end();
    for await (const chunk of outside.stderr) if (String(chunk).includes("has sent no heartbeat")) break;
    outside.kill("SIGKILL");
    assert.equal(reports(1)[0]?.what.phase, null);
  });

  it("H13, red proof: a watchdog in the thread that hangs reports nothing", async () => {
    const sharedStatus = new SharedStatus();
    const phases = new Phases({ sharedStatus, recorder: new Recorder(), log: () => {} });
    const detector = new StallDetector(sharedStatus, limitMs, systemClock);
    const stalls: unknown[] = [];
    let checks = 0;
    const timer = setInterval(() => {
      checks++;
      stalls.push(...[detector.examine()].filter((stall) => stall !== undefined));
    }, 20);
    const never = new Int32Array(new SharedArrayBuffer(4));
    phases.run("step", () => Atomics.wait(never, 0, 0, 4 * limitMs), { number: 3 });
    while (checks < 2) await passed(20);
    clearInterval(timer);
    assert.deepEqual(stalls, []);
  });

  it("has started the outside process before a runtime loads a BLAS library, whose threads end at a fork", {
    skip: needsProc,
  }, () => {
    const runtime = openRuntime({
      ...{ blas: "auto", memory: "64MiB", staging: "1MiB", stallAfter: "60s", reports: reportDir },
      ...{ environment: {}, print: () => {} },
    });
    try {
      outsideProcesses(1);
    } finally {
      runtime.close();
    }
  });

  it("rejects an invalid limit", () => {
    const recorder = new Recorder();
    const options = {
      ...{ sharedStatus: new SharedStatus(), labels: recorder.labels, recorder, reportDir },
      onStall: "report" as const,
    };
    for (const stallAfterMs of [0, -1, Number.NaN, Number.POSITIVE_INFINITY]) {
      assert.throws(() => startWatchdog({ ...options, stallAfterMs }), { code: "BAD_SETTING" });
    }
  });

  function start(watchdog: string, behaviours: readonly string[], flags: readonly string[] = []) {
    const args = [...flags, fixture, String(limitMs), reportDir, watchdog, ...behaviours];
    const child = spawn(process.execPath, args);
    const end = endOf(child);
    const stdout = collect(child.stdout);
    /** Waits until this many behaviours have begun, or the run has ended. */
    const begun = async (count: number): Promise<void> => {
      while (stdout.lines().length < count && child.exitCode === null)
        await Promise.race([once(child.stdout, "data"), end]);
    };
    return { child, begun, end: end.then((ended) => ({ ...ended, begunMs: stdout.lines().map(Number) })) };
  }

  /** The run's reports, in their order. */
  function reports(count: number): StallReport[] {
    const names = readdirSync(reportDir).filter((name) => name.endsWith(".json"));
    assert.equal(names.length, count, `the reports are: ${names.join(", ") || "none"}`);
    return names
      .map((name): StallReport => JSON.parse(readFileSync(join(reportDir, name), "utf8")))
      .sort((a, b) => (a.time < b.time ? -1 : 1));
  }

  /** The outside processes of this test's run, by the report folder on their command line. */
  function outsideProcesses(count?: number): number[] {
    const pids = readdirSync("/proc")
      .filter((entry) => /^\d+$/.test(entry))
      .filter((entry) => {
        try {
          const command = readFileSync(`/proc/${entry}/cmdline`, "utf8");
          return command.includes(basename(watchdogScript)) && command.includes(reportDir);
        } catch {
          return false;
        }
      })
      .map(Number);
    if (count !== undefined) assert.equal(pids.length, count);
    return pids;
  }
});

type Child = ChildProcessByStdio<Writable, Readable, Readable>;

async function endOf(child: Child) {
  const stderr = text(child.stderr);
  const [code, signal] = (await once(child, "close")) as [number | null, NodeJS.Signals | null];
  return { code, signal, stderr: await stderr };
}

/** The whole lines that a stream has sent so far. */
function collect(stream: Readable): { lines(): readonly string[] } {
  let received = "";
  stream.on("data", (chunk) => {
    received += String(chunk);
  });
  return { lines: () => received.split("\n").slice(0, -1) };
}

async function until(holds: () => boolean): Promise<void> {
  const endMs = performance.now() + generousTimeoutMs;
  while (!holds()) {
    assert.ok(performance.now() < endMs, `it does not hold after ${generousTimeoutMs} ms`);
    await passed(10);
  }
}
