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

const trainersOf = (output: string): string[] => output.match(/trainer \w+ \d+ .* [0-9a-f]{64} end/g) ?? [];

/** What one process prints. */
async function runAlone(program: string, args: readonly (string | number)[]): Promise<string> {
  const [node, nodeArgs] = rankProgram(program, args);
  const env = { ...process.env, ...plainDevice };
  return (await promisify(execFile)(node, nodeArgs, { env })).stdout;
}

let alone: Promise<string> | undefined;
function trainAlone(): Promise<string> {
  alone ??= runAlone("training", [shards, steps, "compiled"]).then((output) => linesOf(output)[0] ?? output);
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

const trainers: readonly Run[] = [
  { mpi: "mpich", size: 2, mode: "compiled" },
  ...(isThorough ? ([{ mpi: "openmpi", size: 4, mode: "eager" }] as const) : []),
];
for (const { mpi, size, mode } of trainers)
  test(`a Trainer on ${size} ranks of ${mpi}, ${mode}, with uneven batches, has the bits of one process`, {
    skip: lacksMpi(mpi),
  }, async () => {
    const expected = trainersOf(await runAlone("trainer", [4, "compiled"]));
    assert.match(expected[0] ?? "", /^trainer finished 6 \[0\.\d+,0\.\d+,0\.\d+\]/);
    const { status, output } = await runRanks({ mpi, size, program: "trainer", args: [4, mode] });
    assert.equal(status, 0, output);
    assert.deepEqual(trainersOf(output), new Array(size).fill(expected[0]));
  });

test("a signal that one rank hears stops all after the same step", {
  skip: lacksMpi("openmpi"),
}, async () => {
  const { status, output } = await runRanks({
    ...{ mpi: "openmpi", size: 2, program: "trainer", args: [4, "eager", 3] },
  });
  assert.equal(status, 0, output);
  const [first = "", second] = trainersOf(output);
  assert.match(first, /^trainer stopped 3 /);
  assert.equal(first, second);
  // Each step has two batches.
  assert.deepEqual(output.match(/exchanges \d+/g), ["exchanges 3", "exchanges 3"]);
});
