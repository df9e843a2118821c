/** `holdfast launch`: what processes are told, and when all are started again. */

import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { test } from "node:test";
import { holdfastProgram } from "../../test/support/crossasset-runs.js";
import { shortRunFlags } from "../../test/support/short-process.js";

/** Runs a program of JavaScript as ranks. */
function launch(options: readonly string[], program: string): Promise<{ code: number; output: string }> {
  const args = [holdfastProgram, "launch", ...options, "--", process.execPath, "-e", program];
  return new Promise((done) => {
    execFile(process.execPath, [...shortRunFlags, ...args], (error, stdout, stderr) => {
      done({ code: Number(error?.code ?? 0), output: stdout + stderr });
    });
  });
}

const told =
  "const { RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR, TORCHELASTIC_RESTART_COUNT: count } = process.env;";

test("ranks get torchrun's variables, and all are started again until they succeed", async () => {
  const print =
    'console.log("rank " + RANK + " of " + WORLD_SIZE + ", " + LOCAL_RANK + ", " + MASTER_ADDR + ", start " + count);';
  const fail = 'if (count === "0") process.exit(RANK === "1" ? 7 : 6);';
  const { code, output } = await launch(
    ["-n", "2", "--restarts", "3", "--by", "variables"],
    `${told} ${print} ${fail}`,
  );
  assert.equal(code, 0, output);
  for (const rank of [0, 1])
    for (const start of [0, 1])
      assert.ok(output.includes(`rank ${rank} of 2, ${rank}, 127.0.0.1, start ${start}`), output);
  assert.match(output, /ended with exit code 7; starting all 2 again, restart 1 of 3/);
  assert.doesNotMatch(output, /start 2/);
});

test("a start that would fail again is not repeated, and the rank with the cause decides the exit code", async () => {
  const { code, output } = await launch(
    ["-n", "2", "--restarts", "3", "--by", "variables"],
    `${told} process.exit(RANK === "1" ? 4 : 6);`,
  );
  assert.equal(code, 4);
  assert.doesNotMatch(output, /again/);
});
