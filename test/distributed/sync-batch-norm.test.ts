/** Batch norm over the rows of all ranks has the statistics of one process with the whole batch. */

import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { test } from "node:test";
import { promisify } from "node:util";
import { lacksMpi, rankProgram, runRanks } from "../support/ranks.js";
import { plainDevice } from "../support/short-process.js";

const linesOf = (output: string): [string, number[]][] =>
  Array.from(output.matchAll(/sync (\w+) (\[.*\]) end/g), ([, mode = "", numbers = ""]) => [
    mode,
    JSON.parse(numbers) as number[],
  ]);

test("layers that synchronize train on 3 ranks as on one with the whole batch", {
  skip: lacksMpi("mpich"),
}, async () => {
  const [node, args] = rankProgram("sync-batch-norm", []);
  const alone = promisify(execFile)(node, args, { env: { ...process.env, ...plainDevice } });
  const { status, output } = await runRanks({ mpi: "mpich", size: 3, program: "sync-batch-norm" });
  assert.equal(status, 0, output);
  const expected = new Map(linesOf((await alone).stdout));
  assert.deepEqual([...expected.keys()], ["eager", "compiled"]);
  const found = linesOf(output);
  assert.equal(found.length, 6);
  const [, [, first = []] = []] = found;
  assert.ok(first.length > 60);
  for (const [mode, numbers] of found)
    for (const [index, number] of numbers.entries()) {
      const wanted = expected.get(mode)?.[index] ?? Number.NaN;
      // Without synchronization they differ by more than 0.1.
      assert.ok(
        Math.abs(number - wanted) < 2e-4 * (1 + Math.abs(wanted)),
        `${mode} ${index}: ${number}, ${wanted}`,
      );
    }
});
