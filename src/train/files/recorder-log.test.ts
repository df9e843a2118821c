/** The recorder's log in a run's folder: its lines, its continuation, and its bounded size. */

import assert from "node:assert/strict";
import { mkdtempSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import { rejects } from "../../../test/support/rejects.js";
import { Recorder } from "../../runtime/index.js";
import { FakeClock } from "../../units/index.js";
import { oldPathOf, RecorderLog } from "./recorder-log.js";

const folder = mkdtempSync(join(tmpdir(), "holdfast-recorder-"));
after(() => rmSync(folder, { recursive: true, force: true }));

const wallMs = (atMs: number): number => Date.UTC(2026, 0, 1) + atMs;

test("has a line for each phase, charge, capture and rejection, and none for frequent events", () => {
  const clock = new FakeClock();
  const recorder = new Recorder({ clock });
  const path = join(folder, "kinds.log");
  const log = new RecorderLog(path, recorder, { wallMs });
  recorder.record("phase-enter", "upload");
  recorder.record("allocate", "matmul", 0, 64);
  clock.advance(1500);
  recorder.step = 7;
  recorder.record("phase-exit", "upload");
  recorder.record("charge", "AdamW", 0, 2 ** 20);
  log.write();
  log.write();
  assert.equal(
    readFileSync(path, "utf8"),
    "2026-01-01T00:00:00.000Z  phase        upload  1.5s\n" +
      "2026-01-01T00:00:01.500Z  charge       AdamW  1 MiB  step 7\n",
  );
});

test("consecutive short phases become one line, and an unfinished phase is marked", () => {
  const clock = new FakeClock();
  const recorder = new Recorder({ clock });
  const path = join(folder, "phases.log");
  const log = new RecorderLog(path, recorder, { wallMs });
  for (let count = 0; count < 150; count++) {
    recorder.record("phase-enter", "read-back");
    clock.advance(10);
    recorder.record("phase-exit", "read-back");
  }
  recorder.record("phase-enter", "capture (train)");
  recorder.record("phase-enter", "read-back");
  log.write();
  recorder.record("phase-exit", "read-back");
  recorder.record("phase-exit", "capture (train)");
  log.write();
  assert.deepEqual(
    readFileSync(path, "utf8")
      .trimEnd()
      .split("\n")
      .map((line) => line.slice("2026-01-01T00:00:00.000Z  ".length)),
    [
      "phase        read-back ×150  1.5s",
      "phase-enter  capture (train)",
      "phase-enter  read-back",
      "phase-exit   read-back",
      "phase-exit   capture (train)",
    ],
  );
});

test("of a resumed run is continued", () => {
  const path = join(folder, "again.log");
  for (const label of ["first", "second"]) {
    const recorder = new Recorder({ clock: new FakeClock() });
    recorder.record("capture", label);
    new RecorderLog(path, recorder, { wallMs }).write();
  }
  assert.deepEqual(readFileSync(path, "utf8").match(/first|second/g), ["first", "second"]);
});

test("says how many events came too fast", () => {
  const recorder = new Recorder({ capacity: 4, clock: new FakeClock() });
  const path = join(folder, "fast.log");
  const log = new RecorderLog(path, recorder, { wallMs });
  for (let count = 0; count < 10; count++) recorder.record("capture", `number ${count}`);
  log.write();
  const lines = readFileSync(path, "utf8").trimEnd().split("\n");
  assert.equal(lines[0], "6 events came too fast and were lost");
  assert.match(lines[1]!, /number 6$/);
});

test("has at most two files of its limit, and always has the latest lines", () => {
  const recorder = new Recorder({ clock: new FakeClock() });
  const path = join(folder, "long.log");
  const log = new RecorderLog(path, recorder, { wallMs, limit: 500 });
  for (let count = 0; count < 200; count++) {
    recorder.record("capture", `number ${count}`);
    log.write();
    assert.match(readFileSync(path, "utf8"), new RegExp(`number ${count}\n$`));
  }
  assert.deepEqual(
    readdirSync(folder)
      .filter((name) => name.startsWith("long"))
      .sort(),
    ["long.log", "long.old.log"],
  );
  for (const file of [path, oldPathOf(path)]) assert.ok(statSync(file).size < 600, file);
});

test("that can't be written is a file error, not a crash", () => {
  writeFileSync(join(folder, "file"), "");
  const recorder = new Recorder();
  const path = join(folder, "file", "recorder.log");
  rejects(
    "BAD_FILE",
    () => new RecorderLog(path, recorder).write(),
    /recorder\.log can't be opened.*ENOTDIR/,
  );
});
