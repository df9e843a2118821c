/**
 * The CrossAsset job as a person runs it: it goes on after any end to the same bits. What it learns stands in
 * crossasset-learning.test.ts, and what can go wrong in crossasset-faults.test.ts.
 */

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { cpSync, existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { after, describe, test } from "node:test";
import { setTimeout } from "node:timers/promises";
import { crossasset } from "holdfast";
import { startCommandHost } from "../support/command-host.js";
import {
  jobEnvironment as env,
  holdfastProgram,
  measuredIn,
  recordsIn,
  tensorsIn,
  tinyModel,
} from "../support/crossasset-runs.js";
import { effort, isThorough } from "../support/effort.js";
import { shortRunFlags } from "../support/short-process.js";
import { testDevice } from "../support/test-device.js";

const folder = mkdtempSync(join(tmpdir(), "holdfast-job-"));
after(() => rmSync(folder, { recursive: true, force: true }));

const command = ["train", "crossasset", "--device", testDevice === "cuda" ? "cuda" : "cpu"];

// The program takes a second to load: one process runs the commands that nothing ends.
const host = startCommandHost(folder, env);
after(() => host.close());

const holdfast = (...args: readonly string[]) => host.run([...command, ...args]);

/** A small job: two folds of two epochs, with batches that are not full, and dropout. */
const { stride, steps } = effort({
  quick: { stride: "40", steps: 6 },
  thorough: { stride: "20", steps: 10 },
});
const job = [
  ...["--generate", "9000", "--stride", stride, "--batch", "12", "--epochs", "2", "--dropout", "0.1"],
  ...tinyModel,
];
const small = [...job, "--quiet"];

const isTried = testDevice !== "emulator";
/** The line of output after which the first kill comes: the second epoch's checkpoint, or the first line of a resumed run's steps. */
const firstLine = effort({ quick: 12, thorough: 8 });
/** More with TEST_KILLS=30. */
const kills = Number(process.env["TEST_KILLS"] ?? effort({ quick: 1, thorough: 8 }));

describe("a job that is ended", { skip: !isTried && "minutes of training on an emulator" }, () => {
  /** Runs the program, and ends it some milliseconds after a line of its output; its exit code, or null after SIGKILL. */
  async function end(run: string, signal: NodeJS.Signals, line: number, ms: number): Promise<number | null> {
    const args = [...shortRunFlags, holdfastProgram, ...command, ...job, "--json", "--out", run];
    const child = spawn(process.execPath, args, { cwd: folder, env, stdio: ["ignore", "pipe", "inherit"] });
    const ended = once(child, "exit") as Promise<[number | null]>;
    let lines = 0;
    for await (const _ of createInterface({ input: child.stdout })) {
      if (++lines !== line) continue;
      await Promise.race([setTimeout(ms), ended]);
      child.kill(signal);
    }
    const [code] = await ended;
    return code;
  }

  function requireWhole(run: string): void {
    assert.equal(measuredIn(join(folder, run)), measuredIn(join(folder, "whole")));
    assert.equal(tensorsIn(join(folder, run)), tensorsIn(join(folder, "whole")));
    assert.deepEqual(recordsIn(join(folder, run)), recordsIn(join(folder, "whole")));
  }

  test("resumes with the same command to the same bits as an uninterrupted run, whatever ended it and when", async (t) => {
    assert.equal((await holdfast(...small, "--out", "whole")).status, 0);
    if (isThorough) {
      const signal = { name: "SIGTERM", at: '"step":1,' } as const;
      const stopped = await host.run([...command, ...job, "--json", "--out", "cut"], { signal });
      assert.equal(stopped.status, 3, stopped.stderr);
    }
    const codes: (number | null)[] = [];
    for (let count = 0; count < kills; count++) {
      if (existsSync(join(folder, "cut", "results.json"))) rmSync(join(folder, "cut"), { recursive: true });
      const signal = (["SIGKILL", "SIGINT", "SIGKILL", "SIGTERM"] as const)[count % 4]!;
      // Each attempt runs longer before its signal, so that the last ones finish.
      codes.push(await end("cut", signal, firstLine + 3 * count, (17 * count) % 40));
    }
    t.diagnostic(`exit codes: ${codes.join(" ")}`);
    assert.ok(codes.every((code) => code === 0 || code === 3 || code === null));
    // The quick form has one resumed run: the next test resumes the killed one from its first checkpoint.
    if (!isThorough) return;
    assert.equal((await holdfast(...small, "--out", "cut")).status, 0);
    requireWhole("cut");
  });

  test("resumes to the same bits from an earlier checkpoint if the latest is damaged and the option is set", async () => {
    cpSync(join(folder, isThorough ? "whole" : "cut"), join(folder, "damaged"), { recursive: true });
    const checkpoints = join(folder, "damaged", "checkpoints");
    const name = readdirSync(checkpoints).sort().at(-1)!;
    const last = join(checkpoints, name);
    const bytes = readFileSync(last);
    bytes[bytes.length - 9]! ^= 1;
    writeFileSync(last, bytes);
    const statusFile = join(folder, "damaged", "status.json");
    writeFileSync(statusFile, readFileSync(statusFile, "utf8").replace('"finished"', '"stopped"'));
    const rejected = await holdfast(...small, "--out", "damaged");
    assert.equal(rejected.status, 4);
    assert.match(rejected.stderr, /^holdfast: BAD_FILE: [^\n]*\n$/);
    assert.ok(rejected.stderr.includes(name), rejected.stderr);
    const older = await holdfast(...small, "--out", "damaged", "--older-checkpoint");
    assert.equal(older.status, 0, older.stderr);
    assert.ok(older.stderr.includes(`skipped checkpoint ${name}`), older.stderr);
    requireWhole("damaged");
  });

  test("says how it ended, and a run that has ended is not run again", async () => {
    const status = JSON.parse(readFileSync(join(folder, "whole", "status.json"), "utf8"));
    assert.deepEqual([status.state, status.exitCode, status.step, status.of], ["finished", 0, steps, steps]);
    for (const more of [[], ["--resume"]]) {
      const { status: code, stdout, stderr } = await holdfast(...job, "--out", "whole", ...more);
      assert.deepEqual([code, stderr], [0, ""]);
      assert.equal(
        stdout,
        "The run in whole is already finished. Its results are in whole/results.json. To train again, use another --out.\n",
      );
    }
    assert.equal((await holdfast(...small, "--out", "whole")).stdout, "");
    assert.deepEqual(JSON.parse((await holdfast(...job, "--json", "--out", "whole")).stdout), {
      ...{ kind: "finished before", run: "whole" },
    });
    const other = await holdfast(...small, "--lr", "0.002", "--out", "whole");
    assert.equal(other.status, 4, "another job's results are not these");
    const rounded = await host.run([...command, ...small, "--out", "whole"], {
      env: { HOLDFAST_PRECISION: "bf16" },
    });
    assert.equal(rounded.status, 4, "a variable is a setting too");
    assert.match(rounded.stderr, /precision was "f32" and is now "bf16"/);
    assert.match(other.stderr, /^holdfast: BAD_SETTING: .*lr was 0\.001 and is now 0\.002.*\n$/);
  });

  test("leaves a model that can be asked about other bars, up to the last of them", async () => {
    const bars = crossasset.generateBars({ bars: 8200, seed: 7 });
    await crossasset.writeBars(join(folder, "other.csv"), bars);
    const ask = async (name: string, ...args: readonly string[]) =>
      (await host.run([name, "crossasset", "whole", "--bars", "other.csv", ...args])).stdout;
    const { samples, overall, perScale } = JSON.parse(await ask("eval", "--json"));
    assert.deepEqual([samples, perScale.length], [5, 12]);
    assert.ok(overall.accuracy > 0 && overall.loss > 0);
    const [head, ...lines] = (await ask("predict")).trimEnd().split("\n");
    assert.equal(head, "time,minutes,answer,long,short,flat");
    // Every 60th bar from the first with its history on, twelve scales each, labels or not.
    assert.equal(lines.length, 12 * 9);
    const right = lines.filter((line) => {
      const [time, minutes, answer] = line.split(",");
      const at = bars.time.indexOf(Date.parse(time!));
      const [now, then] = [bars.close[at]!, bars.close[at + Number(minutes)]];
      return then !== undefined && answer === (then > now ? "long" : "short");
    });
    assert.ok(right.length > 0, "some answers are right about the direction");
    assert.match(
      (await ask("predict", "--json")).split("\n")[0] ?? "",
      /^\{"time":".*Z","minutes":1,"answer":"/,
    );
  });

  test("that is not there is named before anything is printed, with the runs that are there", async () => {
    for (const name of ["predict", "eval"]) {
      const args = [name, "crossasset", "missing", "--bars", "other.csv"];
      const { status, stdout, stderr } = await host.run(args);
      assert.deepEqual([status, stdout], [4, ""]);
      assert.match(
        stderr,
        /^holdfast: BAD_FILE: missing holds no run: the folder does not exist\. Runs found in \.\/: .*\bwhole\b.*\.\n$/,
      );
    }
    const args = ["predict", "crossasset", "whole", "--bars", "missing.csv"];
    const { status, stdout, stderr } = await host.run(args);
    assert.deepEqual([status, stdout], [4, ""]);
    assert.match(stderr, /^holdfast: BAD_FILE: missing\.csv: it does not exist/);
  });

  test("is rejected where it was started with other settings", async () => {
    const statusFile = join(folder, "whole", "status.json");
    writeFileSync(statusFile, readFileSync(statusFile, "utf8").replace('"finished"', '"stopped"'));
    const { status, stderr } = await holdfast(...small, "--lr", "0.002", "--out", "whole");
    assert.equal(status, 4);
    assert.match(stderr, /^holdfast: BAD_SETTING: .*lr was 0\.001 and is now 0\.002.*\n$/);
  });
});
