/** The health of a run for liveness probes: alive, stalled, ended normally or failed. */

import assert from "node:assert/strict";
import { execFileSync, spawnSync } from "node:child_process";
import { readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { makeFolder } from "../../test/support/folders.js";
import { healthOf, type RunHealth } from "./health.js";
import { RunFolder } from "./run-folder.js";
import { runPhases } from "./run-phases.js";

const startMs = Date.UTC(2026, 0, 1);

/** A run on a clock that the test moves. */
function begin(): { readonly folder: RunFolder; readonly path: string; at(elapsedMs: number): void } {
  let nowMs = startMs;
  const path = makeFolder();
  const folder = RunFolder.create(path, { settings: {}, device: "x", now: () => nowMs, heartbeatMs: 0 });
  return {
    folder,
    path,
    at(elapsedMs) {
      nowMs = startMs + elapsedMs;
    },
  };
}

function health(path: string, elapsedMs: number): RunHealth {
  return healthOf(path, { now: startMs + elapsedMs, limitMs: 30_000 });
}

function isTold({ state, reason, exitCode }: RunHealth, expected: string, pattern: RegExp): void {
  assert.deepEqual(
    [state, exitCode],
    [expected, ["stalled", "diverged", "failed"].includes(expected) ? 1 : 0],
  );
  assert.match(reason, pattern);
  assert.ok(!reason.includes("\n"));
}

test("a run that makes steps is alive", () => {
  const { folder, path, at } = begin();
  isTold(health(path, 1000), "alive", /at step 0; last heartbeat 1s ago/);
  at(60_000);
  folder.noteProgress({ step: 7, of: 20 });
  isTold(health(path, 90_000), "alive", /at step 7 of 20; last heartbeat 30s ago/);
  folder.close();
});

test("a run that is silent for longer than the limit is stalled", () => {
  const { folder, path } = begin();
  isTold(health(path, 30_001), "stalled", /There was no heartbeat for 30s, since step 0; the limit is 30s/);
  folder.close();
});

test("a run with a heartbeat and without progress is stalled", () => {
  const { folder, path, at } = begin();
  for (const elapsedMs of [10_000, 20_000, 40_000]) {
    at(elapsedMs);
    folder.noteProgress({ step: 3 });
  }
  isTold(health(path, 40_500), "stalled", /at step 3 for 30\.5s; the limit is 30s/);
  folder.close();
});

test("a phase without heartbeats may be silent up to its own limit", () => {
  const { maxSilenceMs } = runPhases.compiling;
  const { folder, path, at } = begin();
  at(1000);
  folder.enterPhase("compiling");
  isTold(health(path, 1000 + maxSilenceMs), "alive", /at step 0, compiling; last heartbeat 10m/);
  isTold(health(path, 1001 + maxSilenceMs), "stalled", /since step 0, compiling; the limit is 10m/);
  at(2000);
  folder.noteProgress({ step: 1 });
  isTold(health(path, 32_001), "stalled", /since step 1; the limit is 30s/);
  folder.close();
});

test("a phase with heartbeats may take long, but must not be silent", () => {
  const { maxDurationMs } = runPhases["preparing features"];
  const { folder, path, at } = begin();
  folder.enterPhase("preparing features");
  isTold(health(path, 30_001), "stalled", /since step 0, preparing features; the limit is 30s/);
  for (const elapsedMs of [maxDurationMs, maxDurationMs + 1]) {
    at(elapsedMs);
    folder.beat();
    const [state, pattern] =
      elapsedMs > maxDurationMs
        ? (["stalled", /preparing features for 120m/] as const)
        : (["alive", /./] as const);
    isTold(health(path, elapsedMs), state, pattern);
  }
  folder.close();
});

test("a probe's limit above the phase's limit applies, and an unknown phase has the probe's limit", () => {
  const { folder, path } = begin();
  folder.enterPhase("compiling");
  const { maxSilenceMs } = runPhases.compiling;
  const patient = healthOf(path, { now: startMs + 2 * maxSilenceMs, limitMs: 3 * maxSilenceMs });
  assert.equal(patient.state, "alive");
  folder.close();
  const file = join(path, "status.json");
  writeFileSync(file, readFileSync(file, "utf8").replace('"compiling"', '"constructor"'));
  isTold(health(path, 30_001), "stalled", /the limit is 30s/);
});

test("a failure is reported with its phase, a normal end without one", () => {
  const endedAs = (state: "finished" | "failed") => {
    const { folder, path } = begin();
    folder.enterPhase("testing");
    folder.end({ state, exitCode: 0 });
    return health(path, 1);
  };
  isTold(endedAs("failed"), "failed", /at step 0, testing,/);
  isTold(endedAs("finished"), "finished", /^It finished at step 0\.$/);
});

test("a run whose process ended without a message has failed", () => {
  const { folder, path } = begin();
  folder.close();
  const file = join(path, "status.json");
  const status = JSON.parse(readFileSync(file, "utf8"));
  const pid = spawnSync(process.execPath, ["-e", ""]).pid;
  writeFileSync(file, JSON.stringify({ ...status, pid }));
  isTold(health(path, 1), "failed", new RegExp(`Process ${pid} ended without a message.*Resume the run`));
  writeFileSync(file, JSON.stringify({ ...status, host: "another.example" }));
  isTold(health(path, 1), "alive", /at step 0/);
});

test("an end is reported unchanged, however long ago", () => {
  const yearMs = 365 * 24 * 3_600_000;
  const endedAs = (state: "finished" | "stopped" | "failed", exitCode: number, reason?: string) => {
    const { folder, path } = begin();
    folder.noteProgress({ step: 12 });
    folder.end({ state, exitCode, ...(reason !== undefined && { reason }) });
    return health(path, yearMs);
  };
  isTold(endedAs("finished", 0), "finished", /^It finished at step 12\.$/);
  isTold(
    endedAs("stopped", 3, "SIGTERM"),
    "stopped",
    /^It was stopped at step 12: SIGTERM; it can be resumed\.$/,
  );
  isTold(
    endedAs("failed", 1, "NOT_FINITE"),
    "failed",
    /^It failed at step 12 with exit code 1: NOT_FINITE\.$/,
  );
});

test("a folder without a status, or with a damaged one, is not healthy", () => {
  isTold(healthOf("/no/such/run"), "failed", /has no status: no run was started there/);
  const path = makeFolder();
  writeFileSync(join(path, "status.json"), '{"state":');
  isTold(healthOf(path), "failed", /status\.json is not JSON/);
  writeFileSync(join(path, "status.json"), '{"state":"sleeping","step":1}');
  isTold(healthOf(path), "failed", /is not a run's status/);
});

test("a pipe instead of a status, and a status of megabytes, are reported at once", () => {
  const { folder, path } = begin();
  folder.close();
  const status = join(path, "status.json");
  rmSync(status);
  execFileSync("mkfifo", [status]);
  isTold(health(path, 0), "failed", /status\.json is a folder, a pipe or a device/);
  rmSync(status);
  writeFileSync(status, " ".repeat(17 * 2 ** 20));
  isTold(health(path, 0), "failed", /status\.json has 17 MiB; the maximum is 16 MiB/);
});

test("a diverged run is unhealthy, and its reason is reported", () => {
  const { folder, path } = begin();
  folder.noteProgress({ step: 4, of: 9 });
  folder.end({ state: "diverged", reason: "Fold 1, epoch 2: 3 of 4 steps were skipped.", exitCode: 5 });
  isTold(
    health(path, 1000),
    "diverged",
    /^It diverged at step 4: Fold 1, epoch 2: 3 of 4 steps were skipped\.$/,
  );
});
