/**
 * Every system call of a training, its resume, its evaluation and its inspection fails once, in every
 * possible way: some 1,900 runs. failing-calls.test.ts has a sample.
 */

import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { join } from "node:path";
import { test } from "node:test";
import { holdfastProgram, measuredIn, tensorsIn } from "./support/crossasset-runs.js";
import type { DisturbedRuns as Runs } from "./support/disturbed-runs.js";
import { describeFault, faultKinds } from "./support/failing-calls.js";
import { makeFolder } from "./support/folders.js";
import { repositoryRoot } from "./support/repository.js";
import { testEnvironment } from "./support/test-device.js";

// Small buffers fill after a few steps, so that their writes can fail too. The sizes are read when the
// library is loaded.
process.env["TEST_HOLDFAST_SIZES"] = "8";
const { DisturbedRuns } = await import("./support/disturbed-runs.js");

const runsFolder = makeFolder();
let prepared: Promise<Runs> | undefined;

for (const command of ["train", "resume", "evaluate", "inspect"] as const) {
  test(`whichever call of ${command} fails, it reports an error of Holdfast and loses nothing`, async (t) => {
    prepared ??= DisturbedRuns.prepare(runsFolder);
    const runs = await prepared;
    const cases = await runs.cases(command);
    const [wrong, missed]: [string[], string[]] = [[], []];
    let continued = 0;
    for (const runCase of cases) {
      try {
        const { hasFailed, ended } = await runs.disturb(runCase);
        if (!hasFailed) missed.push(describeFault(runCase.fault));
        else if (ended.error === undefined) continued++;
      } catch (error) {
        wrong.push(error instanceof Error ? error.message : String(error));
      }
    }
    t.diagnostic(`${cases.length} faults: ${continued} changed nothing, ${missed.length} were not reached`);
    assert.deepEqual(wrong.slice(0, 5), [], `${wrong.length} of ${cases.length}`);
    // The number of memory queries and of status writes depends on the time.
    assert.ok(missed.length < cases.length / 20, missed.join("\n"));
  });
}

test("the command prints one line and ends with the right exit code, wherever a call fails", () => {
  const folder = makeFolder();
  const preload = join(repositoryRoot, "dist/test/support/failing-calls-preload.js");
  const args = ["--generate", "12000", "--folds", "1", "--epochs", "2", "--batch", "32", "--quiet"];
  const holdfast = (out: string, fault?: string) =>
    spawnSync(
      process.execPath,
      [
        ...(fault ? ["--import", preload] : []),
        holdfastProgram,
        "train",
        "crossasset",
        ...args,
        "--out",
        out,
      ],
      {
        ...{ encoding: "utf8", cwd: folder },
        env: { PATH: process.env["PATH"] ?? "", ...testEnvironment, ...(fault && { TEST_FAULT: fault }) },
      },
    );
  assert.equal(holdfast("whole").status, 0);
  const expected = [measuredIn(join(folder, "whole")), tensorsIn(join(folder, "whole"))];
  for (const kind of ["open", "write", "sync", "rename", "make", "truncate"] as const) {
    for (const nth of [1, 3, 6, 10]) {
      const [how] = faultKinds[kind];
      const fault = { kind, nth, how: "EIO", ...how };
      const out = `${kind}-${nth}`;
      const { status, stderr } = holdfast(out, JSON.stringify(fault));
      const what = `${describeFault(fault)}: ${status} ${stderr}`;
      if (status !== 0) {
        assert.equal(status, 1, what);
        assert.match(stderr, /^holdfast: BAD_FILE: [^\n]*\n$/, what);
        assert.equal(holdfast(out).status, 0, what);
      }
      assert.deepEqual([measuredIn(join(folder, out)), tensorsIn(join(folder, out))], expected, what);
    }
  }
});
