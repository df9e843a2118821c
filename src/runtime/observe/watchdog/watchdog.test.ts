/** The watchdog with real processes, because threads that do not respond cannot be simulated. */

import assert from "node:assert/strict";
import { type ChildProcessByStdio, spawn } from "node:child_process";
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { basename, join } from "node:path";
import type { Readable, Writable } from "node:stream";
import { text } from "node:stream/consumers";
import { afterEach, beforeEach, describe, it } from "node:test";
import { setTimeout as passed } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { exitCodes } from "../../../errors/index.js";
import { systemClock } from "../../../units/index.js";
import { Recorder } from "../recorder.js";
import { SharedStatus } from "../shared-status.js";
import type { StallReport } from "./report.js";
import { startWatchdog } from "./watchdog.js";

const limitMs = 400;
const fixture = fileURLToPath(new URL("../../../../test/fixtures/watched-run.js", import.meta.url));
const watchdogScript = fileURLToPath(new URL("./watchdog-process.js", import.meta.url));
const needsProc = existsSync("/proc/self/cmdline") ? false : "needs /proc";

describe("the watchdog", () => {
  let reportDir: string;
  beforeEach(() => {
    reportDir = mkdtempSync(join(tmpdir(), "holdfast-watchdog-"));
  });
  afterEach(() => rmSync(reportDir, { recursive: true }));

  it("reports a busy loop in step 3 and ends the run with the exit code of a stall", async () => {
    const run = start("busy in step 3");
    const { code, stderr } = await run.end;
    const { what, process: state, ending } = onlyReport();
    assert.equal(code, exitCodes.stalled.code);
    assert.equal(what.phase, "step");
    assert.equal(what.number, 3);
    assert.equal(what.call, null);
    assert.equal(what.op, "matmul");
    assert.equal(ending, "exit");
    assert.match(
      stderr,
      /^holdfast: stalled: step 3 \(last op matmul\) has made no progress for \d+ms \(limit 400ms\)\n/,
    );
    if (!needsProc) assert.ok(state.threads.some(({ id, name }) => id === run.child.pid && name.length > 0));
    // Time in which the loop waited for a processor does not count.
    assert.ok(what.elapsedMs <= limitMs + 1000, `${what.elapsedMs} ms`);
  });

  it("names the driver call that a run is blocked in, and ends the run in time", async () => {
    const run = start("blocked in synchronize");
    const { code, stderr, endedMs } = await run.end;
    assert.equal(code, exitCodes.stalled.code);
    const tookMs = endedMs - (await run.begun);
    assert.ok(tookMs <= limitMs + 1000, `the run ended ${tookMs} ms after the stall began`);
    assert.equal(onlyReport().what.call, "synchronize");
    assert.match(stderr, /step 3, driver call synchronize \(last op matmul\) has not returned/);
  });

  it("names the write of a file that a run is blocked in", async () => {
    const { code, stderr } = await start("blocked in a write of a file").end;
    rmSync(join(reportDir, readdirSync(reportDir).find((name) => name.endsWith(".part"))!));
    assert.equal(code, exitCodes.stalled.code);
    assert.equal(onlyReport().what.phase, "disk-write");
    assert.match(stderr, /^holdfast: stalled: disk-write has made no progress for .*look at +the disk: /s);
  });

  it("reports a program that is busy between two phases, and never ends it", async () => {
    const { code, stderr } = await start("busy between two phases").end;
    assert.equal(code, 0);
    const { what, ending } = onlyReport();
    assert.deepEqual([what.kind, what.phase, ending], ["program", null, "none"]);
    assert.match(stderr, /^holdfast: stalled: the program's own code has blocked the event loop for /);
  });

  it("detects a stall that begins before its thread has started", async () => {
    const { code } = await start("busy before the watchdog is up").end;
    assert.equal(code, exitCodes.stalled.code);
    assert.equal(onlyReport().what.number, 3);
  });

  it("reports once and lets the run continue if onStall is report", async () => {
    const { code, stderr } = await start("stalls and goes on").end;
    assert.equal(code, 0);
    assert.equal(onlyReport().ending, "none");
    assert.match(
      stderr,
      /the process keeps running; to end it on a stall, start it with HOLDFAST_ON_STALL=end/,
    );
  });

  it("reports a second stall of a run that continues", async () => {
    const { code, stderr } = await start("stalls twice and goes on").end;
    assert.equal(code, 0);
    assert.deepEqual(
      [...stderr.matchAll(/stalled: (step \d)/g)].map(([, step]) => step),
      ["step 3", "step 4"],
    );
  });

  for (const behaviour of [
    "works on, with beats",
    "works on, with beats, beside busy threads",
    "is held by a debugger",
  ]) {
    it(`does not report a run that ${behaviour}`, async () => {
      const { code, stderr } = await start(behaviour).end;
      assert.deepEqual([code, readdirSync(reportDir)], [0, []], stderr);
    });
  }

  it("does not report a process that is stopped for longer than the limit and then continues", {
    skip: needsProc,
  }, async () => {
    const run = start("waits to be stopped");
    await run.begun;
    run.child.kill("SIGSTOP");
    // Real time: what is tried is a process that has none.
    await passed(4 * limitMs);
    run.child.kill("SIGCONT");
    await passed(2 * limitMs);
    run.child.stdin.write("end\n");
    const { code, stderr } = await run.end;
    assert.deepEqual([code, readdirSync(reportDir)], [0, []], stderr);
  });

  it("reports and kills from outside a process whose watchdog thread is silent", async () => {
    const { signal, stderr } = await start("is not watched by a thread").end;
    assert.equal(signal, "SIGKILL");
    const { what, noticedBy } = onlyReport();
    assert.equal(what.kind, "silence");
    assert.equal(noticedBy, "outside process");
    assert.match(stderr, /has sent no heartbeat for/);
  });

  it("reports a lost outside process, and still ends the run", {
    skip: needsProc,
  }, async () => {
    const run = start("stalls when told to");
    await run.begun;
    for (const pid of outsideProcesses()) process.kill(pid, "SIGKILL");
    run.child.stdin.write("now\n");
    const { code } = await run.end;
    assert.equal(code, exitCodes.stalled.code);
    assert.match(onlyReport().notes.join(), /outside process ended early \(SIGKILL\)/);
  });

  it("treats a pipe closed without a goodbye as the death of the thread", async () => {
    const settings = { pid: process.pid, stallAfterMs: limitMs, reportDir, onStall: "report" };
    const outside = spawn(process.execPath, [watchdogScript, JSON.stringify(settings)], {
      stdio: ["pipe", "ignore", "pipe"],
    });
    outside.stdin.end();
    for await (const chunk of outside.stderr) if (String(chunk).includes("has sent no heartbeat")) break;
    outside.kill("SIGKILL");
    assert.equal(onlyReport().what.phase, null);
  });

  for (const behaviour of ["ends in good order", "ends without closing"]) {
    it(`leaves no report and no process after a run that ${behaviour}`, { skip: needsProc }, async () => {
      const { code, stderr } = await start(behaviour).end;
      assert.equal(code, 0);
      assert.equal(stderr, "");
      assert.deepEqual(readdirSync(reportDir), []);
      await withinASecond(() => outsideProcesses().length === 0);
    });
  }

  it("survives signals to the whole process group", { skip: needsProc }, async () => {
    const run = start("stalls when told to");
    await run.begun;
    for (const pid of outsideProcesses()) {
      for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"]) process.kill(pid, signal);
    }
    run.child.stdin.write("now\n");
    const { code } = await run.end;
    assert.equal(code, exitCodes.stalled.code);
    assert.deepEqual(onlyReport().notes, []);
  });

  it("H13, red proof: a watchdog in the thread that hangs reports nothing", async () => {
    const { code } = await start("busy under a watchdog of its own thread").end;
    assert.equal(code, 0);
    assert.deepEqual(readdirSync(reportDir), []);
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

  function start(behaviour: string) {
    // With a port: a process that does not listen is not asked whether a debugger has paused it.
    const flags = behaviour.includes("debugger") ? ["--inspect=127.0.0.1:0"] : [];
    const child = spawn(process.execPath, [...flags, fixture, behaviour, String(limitMs), reportDir]);
    return { child, begun: firstNumber(child), end: endOf(child) };
  }

  function onlyReport(): StallReport {
    const names = readdirSync(reportDir);
    assert.equal(names.length, 1, `one report is expected, there are: ${names.join(", ") || "none"}`);
    return JSON.parse(readFileSync(join(reportDir, names[0]!), "utf8"));
  }

  /** The outside processes of this test's run, by the report folder on their command line. */
  function outsideProcesses(): number[] {
    return readdirSync("/proc")
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
  }
});

type Child = ChildProcessByStdio<Writable, Readable, Readable>;

/** When the run began its behaviour, on the clock that all processes share; NaN if it never did. */
function firstNumber(child: Child): Promise<number> {
  return new Promise((resolve) => {
    child.stdout.once("data", (chunk) => resolve(Number.parseFloat(chunk)));
    child.stdout.once("end", () => resolve(Number.NaN));
  });
}

async function endOf(child: Child) {
  const stderr = text(child.stderr);
  const exit = await new Promise<{ code: number | null; signal: string | null; endedMs: number }>((resolve) =>
    child.on("exit", (code, signal) => resolve({ code, signal, endedMs: systemClock.nowMs() })),
  );
  return { ...exit, stderr: await stderr };
}

async function withinASecond(holds: () => boolean): Promise<void> {
  const endMs = systemClock.nowMs() + 1000;
  while (!holds()) {
    assert.ok(systemClock.nowMs() < endMs, "it does not hold after a second");
    await passed(10);
  }
}
