/** `holdfast launch`: what processes are told, and when all are started again. */

import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { test } from "node:test";
import { holdfastProgram } from "../../test/support/crossasset-runs.js";
import { shortRunFlags } from "../../test/support/short-process.js";

/** Runs a program of JavaScript as ranks. */
function launch(
  options: readonly string[],
  program: string,
  environment: Readonly<Record<string, string>> = {},
): Promise<{ code: number; output: string }> {
  const args = [holdfastProgram, "launch", ...options, "--", process.execPath, "-e", program];
  return new Promise((done) => {
    const options = { env: { ...process.env, ...environment } };
    execFile(process.execPath, [...shortRunFlags, ...args], options, (error, stdout, stderr) => {
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

test("on the second of three machines, ranks are those of this machine, and the first machine is the meeting point", async () => {
  const print =
    'console.log("rank " + RANK + " of " + WORLD_SIZE + ", " + LOCAL_RANK + ", " + MASTER_ADDR + ":" + process.env.MASTER_PORT);';
  const environment = { MASTER_ADDR: "first.pods", MASTER_PORT: "29501", JOB_COMPLETION_INDEX: "1" };
  const { code, output } = await launch(["-n", "2", "--machines", "3"], `${told} ${print}`, environment);
  assert.equal(code, 0, output);
  for (const local of [0, 1])
    assert.ok(output.includes(`rank ${2 + local} of 6, ${local}, first.pods:29501`), output);
  const wrong = await launch(["-n", "2", "--machines", "3", "--machine", "3"], "", environment);
  assert.deepEqual(
    [wrong.code, /are 0 to 2, and this is --machine 3/.test(wrong.output)],
    [4, true],
    wrong.output,
  );
});
