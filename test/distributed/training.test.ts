/** Data parallelism on the CPU: with shards, every number of ranks ends with the same bits, eagerly and compiled. */

import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { test } from "node:test";
import { promisify } from "node:util";
import { isThorough } from "../support/effort.js";
import { lacksMpi, type MpiName, rankProgram, runRanks } from "../support/ranks.js";
import { plainDevice } from "../support/short-process.js";

/** 12 shards: 2 ranks have 6 each, no power of two; 3 ranks have 4. */
const [shards, steps] = [12, 3];

interface Run {
  readonly mpi: MpiName;
  readonly size: number;
  readonly mode: "eager" | "compiled";
}

const runs: readonly Run[] = [
  { mpi: "openmpi", size: 2, mode: "compiled" },
  { mpi: "mpich", size: 3, mode: "eager" },
];
const thoroughRuns = (["openmpi", "mpich"] as const).flatMap((mpi) =>
  [2, 3, 4].flatMap((size) => (["eager", "compiled"] as const).map((mode) => ({ mpi, size, mode }))),
);

const linesOf = (output: string): string[] => output.match(/losses [0-9a-f ]+ weights [0-9a-f]+ end/g) ?? [];

/** What one process computes. */
let alone: Promise<string> | undefined;
function trainAlone(): Promise<string> {
  alone ??= promisify(execFile)(...rankProgram("training", [shards, steps, "compiled"]), {
    env: { ...process.env, ...plainDevice },
  }).then(({ stdout }) => linesOf(stdout)[0] ?? stdout);
  return alone;
}

for (const { mpi, size, mode } of isThorough ? thoroughRuns : runs)
  test(`${size} ranks of ${mpi}, ${mode}, have the bits of one process`, {
    skip: lacksMpi(mpi),
  }, async () => {
    const { status, output } = await runRanks({
      mpi,
      size,
      program: "training",
      args: [shards, steps, mode],
    });
    assert.equal(status, 0, output);
    const expected = await trainAlone();
    assert.match(expected, /^losses ([0-9a-f]{8} ){3}weights [0-9a-f]{64} end$/);
    assert.deepEqual(linesOf(output), new Array(size).fill(expected));
  });

test("shards that are no multiple of the ranks are rejected", { skip: lacksMpi("openmpi") }, async () => {
  const { status, output } = await runRanks({ mpi: "openmpi", size: 2, program: "training", args: [3, 1] });
  assert.notEqual(status, 0);
  assert.match(output, /3 shards on 2 ranks: pass a multiple of the number of ranks/);
});
