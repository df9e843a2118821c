/** The thread's end of the outside process: a start with a deadline, and no waiting for its exit. */

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { tmpdir } from "node:os";
import { test } from "node:test";
import { OutsideProcess, unwanted } from "./outside-process.js";

const settings = { pid: process.pid, stallAfterMs: 1000, reportDir: tmpdir(), onStall: "report" } as const;
const listeners = { leave: () => {}, reported: () => {} };

/** A program that replaces the outside process. */
const startProgram = (program: string) => () =>
  spawn(process.execPath, ["--eval", program], { stdio: ["pipe", "pipe", "inherit"] });
const hang = "setInterval(() => {}, 1000)";

test("an outside process that hangs while starting is killed at the deadline", async () => {
  const child = startProgram(hang)();
  const starting = new Int32Array(1);
  const outside = new OutsideProcess(settings, listeners, {
    ...{ startTimeoutMs: 50, start: () => child, starting },
  });
  assert.match(outside.missing ?? "", /is not up yet/);
  assert.equal(starting[0], child.pid);
  const ended = once(child, "exit");
  await outside.settled;
  assert.equal(outside.lost, "the outside process was not up after 50ms");
  assert.equal(starting[0], 0);
  assert.deepEqual(await ended, [null, "SIGKILL"]);
});

test("a hanging outside process is killed when it is dismissed", async () => {
  const child = startProgram(hang)();
  const outside = new OutsideProcess(settings, listeners, { start: () => child });
  outside.dismiss();
  child.ref();
  assert.deepEqual(await once(child, "exit"), [null, "SIGKILL"]);
  await outside.settled;
});

test("an outside process that cannot be started is lost, with the reason", async () => {
  const start = () => {
    throw new Error("spawn EAGAIN");
  };
  const outside = new OutsideProcess(settings, listeners, { start });
  await outside.settled;
  assert.equal(outside.lost, "the outside process could not be started: spawn EAGAIN");
});

test("an outside process that the exiting main thread has killed is unwanted", async () => {
  const child = startProgram(hang)();
  const starting = new Int32Array(1);
  const outside = new OutsideProcess(settings, listeners, { start: () => child, starting });
  starting[0] = unwanted;
  child.kill("SIGKILL");
  await outside.settled;
  assert.ok(outside.isUnwanted);
});

test("an outside process that has started is not missing", async () => {
  const watching = `console.log('{"type":"watching"}'); process.stdin.resume()`;
  const child = startProgram(watching)();
  const outside = new OutsideProcess(settings, listeners, { start: () => child });
  await outside.settled;
  assert.equal(outside.missing, undefined);
  outside.dismiss();
  // The class does not wait for its exit, but this test does.
  child.ref();
  assert.deepEqual(await once(child, "exit"), [0, null]);
});
