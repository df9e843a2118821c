/** A run's folder: its settings and progress, complete at every moment, and readable after any interruption. */

import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import {
  appendFileSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  writeFileSync,
} from "node:fs";
import { hostname } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { makeFolder } from "../../test/support/folders.js";
import { rejects } from "../../test/support/rejects.js";
import { lockName } from "./files/run-lock.js";
import { readRun } from "./read-run.js";
import { RunFolder, type RunFolderOptions } from "./run-folder.js";

const settings = { lr: 0.001, device: "cpu" };

function create(options: RunFolderOptions = {}): RunFolder {
  return RunFolder.create(join(makeFolder(), "runs", "first"), { settings, device: "a CPU", ...options });
}

/** The state after a kill: all files are open, and the lock belongs to a dead process. */
function abandon(folder: RunFolder): void {
  folder.close();
  const dead = spawnSync(process.execPath, ["-e", ""]).pid;
  writeFileSync(folder.pathOf(lockName), JSON.stringify({ pid: dead, host: hostname() }));
}

test("a new run records its settings, versions and machine", () => {
  const folder = create({ now: () => Date.UTC(2026, 0, 2) });
  const { run, status, metrics, results, checkpoints, messages } = readRun(folder.path);
  assert.deepEqual(run, folder.run);
  assert.deepEqual([run?.settings, run?.device, run?.node], [settings, "a CPU", process.version]);
  assert.equal(run?.started, "2026-01-02T00:00:00.000Z");
  assert.match(run?.holdfast ?? "", /^\d+\.\d+\.\d+/);
  assert.deepEqual([status?.state, status?.step, status?.pid], ["running", 0, process.pid]);
  assert.deepEqual([metrics, results, checkpoints, messages], [[], undefined, [], []]);
  folder.close();
});

test("a folder with a run is not started again, and one without a run is not resumed", () => {
  const folder = create();
  folder.close();
  rejects(
    "BAD_ARGUMENT",
    () => RunFolder.create(folder.path, { settings, device: "x" }),
    /Resume it with --resume/,
  );
  rejects("BAD_FILE", () => RunFolder.open(makeFolder()), /holds no run: it has no run\.json/);
  RunFolder.open(folder.path).close();
});

test("two processes can't write one run, and a killed process is replaced", () => {
  const folder = create();
  rejects("RUN_LOCKED", () => RunFolder.open(folder.path), /is held by process/);
  abandon(folder);
  const resumed = RunFolder.open(folder.path);
  assert.deepEqual(resumed.run.settings, settings);
  resumed.close();
});

test("progress is written once a second, however often it is noted", () => {
  let nowMs = Date.UTC(2026, 0, 1);
  const folder = create({ now: () => nowMs });
  const stepsTold = Array.from({ length: 30 }, (_, index) => {
    nowMs += 100;
    folder.noteProgress({ step: index + 1, of: 30, epoch: 0, fold: 1 });
    return readRun(folder.path).status?.step;
  });
  assert.deepEqual([...new Set(stepsTold)], [0, 10, 20, 30]);
  const { of, epoch, fold } = readRun(folder.path).status ?? {};
  assert.deepEqual([of, epoch, fold], [30, 0, 1]);
  folder.close();
});

test("the heartbeat continues without steps, and each has its time", () => {
  let nowMs = Date.UTC(2026, 0, 1);
  const folder = create({ now: () => nowMs, heartbeatMs: 0 });
  folder.noteProgress({ step: 1 });
  nowMs += 5000;
  folder.noteProgress({ step: 1 });
  const { updated, progressed } = readRun(folder.path).status!;
  assert.equal(Date.parse(updated) - Date.parse(progressed), 5000);
  folder.close();
});

test("a phase is written at once, even right after another write", () => {
  const nowMs = Date.UTC(2026, 0, 1);
  const folder = create({ now: () => nowMs });
  const statusOf = () => [readRun(folder.path).status?.step, readRun(folder.path).status?.phase];
  folder.noteProgress({ step: 1 });
  assert.deepEqual(statusOf(), [0, undefined], "too early for a step");
  folder.enterPhase("testing");
  assert.deepEqual(statusOf(), [1, "testing"]);
  folder.noteProgress({ step: 1 });
  assert.deepEqual(statusOf(), [1, undefined]);
  folder.close();
});

test("a run on another machine is taken over after its phase's limit without a heartbeat", () => {
  for (const [phase, limitMs] of [
    [undefined, 120_000],
    ["compiling", 600_000],
  ] as const) {
    const folder = create();
    if (phase) folder.enterPhase(phase);
    folder.close();
    writeFileSync(folder.pathOf(lockName), JSON.stringify({ pid: 1, host: "elsewhere.example" }));
    const heardMs = statSync(folder.pathOf("status.json")).mtimeMs;
    rejects(
      "RUN_LOCKED",
      () => RunFolder.open(folder.path, { now: () => heardMs + limitMs - 1 }),
      /is held by process 1 on elsewhere\.example/,
    );
    RunFolder.open(folder.path, { now: () => heardMs + limitMs }).close();
  }
});

test("the end has a state, a reason and an exit code, and releases the folder", () => {
  const folder = create();
  folder.noteProgress({ step: 4 });
  folder.writeResults({ wf_mean: 0.7, worst: Number.NaN });
  folder.end({ state: "stopped", reason: "SIGTERM", exitCode: 3 });
  const { status, results } = readRun(folder.path);
  assert.deepEqual(
    [status?.state, status?.step, status?.reason, status?.exitCode],
    ["stopped", 4, "SIGTERM", 3],
  );
  assert.deepEqual(results, { wf_mean: 0.7, worst: Number.NaN });
  assert.ok(!readdirSync(folder.path).includes(lockName));
  rejects("CLOSED", () => folder.noteProgress({ step: 5 }), /has ended/);
  const resumed = RunFolder.open(folder.path);
  assert.equal(readRun(folder.path).status?.state, "stopped", "nothing is written before the first note");
  resumed.beat();
  assert.deepEqual(
    [readRun(folder.path).status?.state, readRun(folder.path).status?.step],
    ["running", 4],
    "a resumed run is where it was",
  );
  resumed.close();
});

test("metrics are read in order, and a resume removes a line that a crash cut off", () => {
  const folder = create();
  for (const step of [1, 2]) folder.appendMetrics({ step, loss: 1 / step });
  folder.syncMetrics();
  abandon(folder);
  const path = folder.pathOf("metrics.jsonl");
  for (const tail of ['{"step":3,"lo', "\0\0\0\0\n", '{"step":3}\0\n{"st']) {
    appendFileSync(path, tail);
    const { metrics, messages } = readRun(folder.path);
    assert.deepEqual(
      metrics.map(({ step }) => step),
      [1, 2],
    );
    assert.ok(messages.length > 0, "nothing is said of the damage");
    const resumed = RunFolder.open(folder.path);
    resumed.beat();
    assert.equal(readFileSync(path, "utf8"), '{"step":1,"loss":1}\n{"step":2,"loss":0.5}\n');
    resumed.close();
  }
  const resumed = RunFolder.open(folder.path);
  resumed.appendMetrics({ step: 3, loss: Number.NaN });
  assert.deepEqual(readRun(folder.path).metrics.at(-1), { step: 3, loss: Number.NaN });
  resumed.close();
});

test("metrics after the checkpoint are removed by a resume", () => {
  const folder = create();
  for (const record of [{ note: "begun" }, { step: 1 }, { step: 2 }, { step: 3 }])
    folder.appendMetrics(record);
  folder.dropMetricsAfter(2);
  folder.dropMetricsAfter(2);
  folder.appendMetrics({ step: 3, again: true });
  assert.deepEqual(readRun(folder.path).metrics, [
    { note: "begun" },
    { step: 1 },
    { step: 2 },
    { step: 3, again: true },
  ]);
  folder.close();
});

test("an empty, a missing and a damaged folder are read as far as possible, each with a message", () => {
  const empty = readRun(makeFolder());
  assert.deepEqual(
    [empty.run, empty.status, empty.metrics, empty.checkpoints],
    [undefined, undefined, [], []],
  );
  assert.match(empty.messages.join(), /has no run\.json: no run was started there/);
  assert.match(readRun("/no/such/run").messages.join(), /no run was started there/);
  const folder = create();
  folder.appendMetrics({ step: 1 });
  folder.close();
  writeFileSync(folder.pathOf("run.json"), '{"settings":');
  writeFileSync(folder.pathOf("status.json"), '{"state":"running"}');
  writeFileSync(folder.pathOf("results.json"), "[]");
  mkdirSync(folder.checkpointsPath);
  writeFileSync(join(folder.checkpointsPath, "step-000000007.safetensors"), "");
  const damaged = readRun(folder.path);
  assert.deepEqual([damaged.run, damaged.status, damaged.results], [undefined, undefined, undefined]);
  assert.deepEqual(damaged.metrics, [{ step: 1 }]);
  assert.deepEqual(
    damaged.checkpoints.map(({ step }) => step),
    [7],
  );
  for (const name of ["run.json", "status.json", "results.json"])
    assert.ok(
      damaged.messages.some((message) => message.includes(name)),
      name,
    );
  rejects("BAD_FILE", () => RunFolder.open(folder.path), /run\.json is not JSON/);
  assert.ok(!readdirSync(folder.path).includes(lockName), "the lock was kept");
});

test("a file instead of the folder is an error with advice", () => {
  const path = join(makeFolder(), "file");
  writeFileSync(path, "");
  rejects(
    "BAD_FILE",
    () => RunFolder.create(join(path, "run"), { settings, device: "x" }),
    /can't be created: ENOTDIR/,
  );
});

test("a run whose folder was removed is rejected with its name, and no new folder is made", () => {
  const writes: readonly ((folder: RunFolder) => void)[] = [
    (folder) => folder.noteProgress({ step: 1 }),
    (folder) => folder.writeResults({}),
    (folder) => folder.end({ state: "finished", exitCode: 0 }),
  ];
  for (const write of writes) {
    const folder = create({ heartbeatMs: 0 });
    rmSync(folder.path, { recursive: true });
    rejects("RUN_LOST", () => write(folder), /first no longer has run\.json: .*removed or moved/);
    assert.equal(existsSync(folder.path), false);
    folder.close();
  }
});

test("folders instead of the run's files are rejected with their names", () => {
  for (const name of ["run.json", "status.json", "metrics.jsonl"]) {
    const folder = create();
    folder.close();
    rmSync(folder.pathOf(name));
    mkdirSync(folder.pathOf(name));
    const open = (): void => RunFolder.open(folder.path).noteProgress({ step: 1 });
    const escaped = name.replace(".", "\\.");
    rejects("BAD_FILE", open, new RegExp(`${escaped} (can't be .*: E|is a folder)`));
    assert.ok(readRun(folder.path).messages.some((message) => message.includes(name)));
  }
});
