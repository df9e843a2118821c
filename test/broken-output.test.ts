/**
 * Output that breaks: a closed pipe, a full device. Training continues without its display; other commands
 * end with a message.
 */

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { closeSync, existsSync, openSync } from "node:fs";
import { join } from "node:path";
import { text } from "node:stream/consumers";
import { describe, test } from "node:test";
import { setTimeout } from "node:timers/promises";
import { readRun } from "../src/train/index.js";
import { holdfastProgram, tinyModel } from "./support/crossasset-runs.js";
import { isThorough } from "./support/effort.js";
import { makeFolder } from "./support/folders.js";
import { plainDevice, shortRunFlags } from "./support/short-process.js";

const folder = makeFolder();
const noFull = { skip: !existsSync("/dev/full") && "this system has no /dev/full" };
const data = ["--device", "cpu", "--generate", "8600", "--folds", "1", "--batch", "8"];
const job = ["train", "crossasset", ...data, "--capture", "off", ...tinyModel];

const program = [...shortRunFlags, holdfastProgram];
const env = { ...process.env, ...plainDevice };

/** Runs the command with stdout on a device; returns its exit code and its stderr. */
async function runOnto(device: string, args: readonly string[]) {
  const file = openSync(device, "w");
  const child = spawn(process.execPath, [...program, ...args], { env, stdio: ["ignore", file, "pipe"] });
  closeSync(file);
  const [stderr, [code]] = await Promise.all([text(child.stderr!), once(child, "exit")]);
  return { code: code as number | null, stderr };
}

describe("a training", () => {
  test("continues after its reader is gone, and a hangup stops it with a checkpoint", async () => {
    const run = join(folder, "closed");
    const args = [...program, ...job, "--epochs", "500", "--out", run];
    const child = spawn(process.execPath, args, { env, stdio: ["ignore", "pipe", "pipe"] });
    const [stderr, ended] = [text(child.stderr), once(child, "exit")];
    let isOver = false;
    void ended.then(() => {
      isOver = true;
    });
    await once(child.stdout, "data");
    child.stdout.destroy();
    // Real time: only the run folder shows the progress now.
    while (!isOver && readRun(run).checkpoints.length === 0) await setTimeout(50);
    child.kill("SIGHUP");
    const [code, signal] = await ended;
    assert.deepEqual([code, signal], [3, null], await stderr);
    assert.match(await stderr, /^holdfast: stdout can't be written \(EPIPE\)\. Training continues .*\.\n$/);
    const { status, checkpoints } = readRun(run);
    assert.equal(status?.state, "stopped");
    assert.equal(checkpoints.at(-1)?.step, status?.step);
  });

  // Only in test:long. npm test covers its two halves: a training with a closed pipe, and `settings` with its output on a full disk.
  if (isThorough) {
    test("trains to the end if its output fills the disk", noFull, async () => {
      const run = join(folder, "full");
      const { code, stderr } = await runOnto("/dev/full", [...job, "--epochs", "1", "--out", run]);
      assert.deepEqual([code, readRun(run).status?.state], [0, "finished"], stderr);
      assert.match(stderr, /^holdfast: stdout can't be written \(ENOSPC\)\. Training continues .*\.\n$/);
    });
  }
});

describe("a command whose purpose is its output", () => {
  test("fails with one line if its disk is full", noFull, async () => {
    const { code, stderr } = await runOnto("/dev/full", ["settings"]);
    assert.equal(code, 1);
    assert.match(stderr, /^holdfast: BAD_FILE: stdout can't be written: ENOSPC[^\n]*\n$/);
  });

  test("succeeds if its reader stops reading", async () => {
    const child = spawn(process.execPath, [...program, "settings"], {
      env,
      stdio: ["ignore", "pipe", "pipe"],
    });
    child.stdout.destroy();
    const [stderr, [code]] = await Promise.all([text(child.stderr), once(child, "exit")]);
    assert.deepEqual([code, stderr], [0, ""]);
  });
});
