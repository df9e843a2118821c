/**
 * Ctrl-C, SIGTERM and SIGHUP end a training four seconds later, whatever its main thread does, and the run can be resumed. The main
 * thread would be busy for ten minutes more.
 *
 * @mostlyWaits for processes that take their time to end
 */

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { constants } from "node:os";
import { join } from "node:path";
import { text } from "node:stream/consumers";
import { describe, test } from "node:test";
import { fileURLToPath } from "node:url";
import { run as runCommand } from "../src/cli/command.js";
import { exitCodes } from "../src/errors/index.js";
import { lockName } from "../src/train/files/run-lock.js";
import { healthOf, readRun } from "../src/train/index.js";
import { tinyModel } from "./support/crossasset-runs.js";
import { effort } from "./support/effort.js";
import { makeFolder } from "./support/folders.js";
import { plainEnvironment } from "./support/plain-environment.js";

const folder = makeFolder();
const busyTrain = fileURLToPath(new URL("./fixtures/busy-train.js", import.meta.url));
const busyTrainer = fileURLToPath(new URL("./fixtures/busy-trainer.js", import.meta.url));
const job = ["train", "crossasset", "--device", "cpu", "--generate", "8600", "--folds", "1", ...tinyModel];
const small = [...job, "--epochs", "2", "--batch", "8", "--stall-after", "off", "--capture", "off", "--json"];

/** Runs a script until it is busy, sends a signal, and then another one again and again; returns how the script ended. */
async function stop(args: readonly string[], signal: NodeJS.Signals, then?: NodeJS.Signals) {
  const child = spawn(process.execPath, args, { cwd: folder, env: plainEnvironment });
  const [stdout, stderr, ended] = [text(child.stdout), text(child.stderr), once(child, "exit")];
  await new Promise<void>((resolve) => {
    child.stdout.on("data", (chunk: Buffer) => String(chunk).includes("busy\n") && resolve());
    child.once("exit", () => resolve());
  });
  child.kill(signal);
  // Real time: two signals within half a second are one. A busy machine may deliver two together, so there are more, as from a person.
  const repeating = then && setInterval(() => child.kill(then), 700);
  const [code, endedBy] = (await ended) as [number | null, string | null];
  clearInterval(repeating);
  return { code, endedBy, stdout: await stdout, stderr: await stderr };
}

interface Busy {
  readonly when: "compile" | "step";
  readonly signal: NodeJS.Signals;
}

describe("holdfast train with a busy main thread", () => {
  const blocked: Busy = { when: "step", signal: "SIGHUP" };
  const compiling: Busy = { when: "compile", signal: "SIGTERM" };
  for (const { when, signal } of effort({ quick: [blocked], thorough: [blocked, compiling] })) {
    test(`is ended by ${signal} four seconds later as a stopped run, busy in: ${when}`, async () => {
      const run = join(folder, when);
      const { code, stderr } = await stop([busyTrain, when, ...small, "--out", run], signal);
      assert.equal(code, exitCodes.stopped.code, stderr);
      assert.match(
        stderr,
        new RegExp(
          `^holdfast: stopped: still busy 4s after ${signal}; to resume from the last checkpoint, run`,
          "m",
        ),
      );
      const { state, reason, exitCode } = readRun(run).status ?? {};
      assert.deepEqual([state, exitCode], ["stopped", exitCodes.stopped.code]);
      assert.equal(reason, `${signal}: still busy 4s after ${signal}`);
      assert.equal(healthOf(run).state, "stopped");
      assert.equal(existsSync(join(run, lockName)), false, "the folder is unlocked");
    });
  }

  test("resumes from its checkpoint to the end", async (t) => {
    const run = join(folder, "step");
    assert.ok(readRun(run).checkpoints.length > 0);
    let stdout = "";
    const { mock } = t.mock.method(process.stdout, "write", (chunk: string | Uint8Array) => {
      stdout += String(chunk);
      return true;
    });
    const status = await runCommand([...small, "--out", run]);
    mock.restore();
    assert.equal(status, 0, stdout);
    assert.match(stdout, /"kind":"resumed"/);
    assert.equal(readRun(run).status?.state, "finished");
  });

  test("is ended at once by a second signal, with the same cleanup", async () => {
    const run = join(folder, "twice");
    const args = [busyTrain, "compile", ...small, "--out", run, "--stop-within", "300s"];
    const { code, stderr } = await stop(args, "SIGINT", "SIGTERM");
    assert.equal(code, exitCodes.stopped.code, stderr);
    assert.equal(readRun(run).status?.reason, "SIGINT: a second signal, SIGTERM");
  });

  test("leaves no partial file", () => {
    for (const run of readdirSync(folder)) {
      const partialFiles = readdirSync(join(folder, run), { recursive: true }).filter((name) =>
        String(name).includes(".part"),
      );
      assert.deepEqual(partialFiles, [], run);
      for (const name of ["run.json", "status.json"])
        JSON.parse(readFileSync(join(folder, run, name), "utf8"));
    }
  });
});

/**
 * The program waits only for `stopOnSignals` to listen, which keeps its process alive. A program that is too busy to stop gets SIGTERM in
 * regressions/engine-watch.test.ts.
 */
describe("a program with a Trainer", () => {
  for (const signal of effort({ quick: [], thorough: ["SIGHUP", "SIGINT"] as const })) {
    test(`is ended by ${signal}`, async () => {
      const { code, stderr } = await stop([busyTrainer, "stopOnSignals", "1000", "600000"], signal);
      const expected = `holdfast: stopped: still busy 500ms after ${signal}.\n`;
      assert.deepEqual([code, stderr], [128 + constants.signals[signal], expected]);
    });
  }

  test("stops after its current step if there is time, and ends by itself after the listener's close", async () => {
    const { code, stdout, stderr } = await stop([busyTrainer, "stopOnSignals", "300000", "3000"], "SIGTERM");
    assert.deepEqual([code, stdout, stderr], [0, "busy\nstopped\n", ""]);
  });

  test("without signal handling is ended by the system at once", async () => {
    const { code, endedBy } = await stop(["-e", 'console.log("busy"); for (;;);'], "SIGTERM");
    assert.deepEqual([code, endedBy], [null, "SIGTERM"]);
  });
});
