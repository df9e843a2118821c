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
  /** The beginning of the names of optimizers. */
  readonly only?: string;
}

const runs: readonly Run[] = [
  { mpi: "openmpi", size: 2, mode: "compiled", only: "AdamW, split" },
  { mpi: "mpich", size: 3, mode: "eager" },
];
const thoroughRuns: readonly Run[] = (["openmpi", "mpich"] as const).flatMap((mpi) =>
  [2, 3, 4].flatMap((size) => (["eager", "compiled"] as const).map((mode) => ({ mpi, size, mode }))),
);

/** A line for each optimizer. */
const linesOf = (output: string): string[] =>
  output.match(/[A-Z]\w+(, split)?: losses [0-9a-f ]+ weights [0-9a-f]+ end/g) ?? [];

/** The bytes of moments on each rank. */
const momentsIn = (output: string): number[] =>
  Array.from(output.matchAll(/moments on rank \d: (\d+) bytes/g), ([, bytes]) => Number(bytes));

const trainersOf = (output: string): string[] => output.match(/trainer \w+ \d+ .* [0-9a-f]{64} end/g) ?? [];

/** What one process prints. */
async function runAlone(program: string, args: readonly (string | number)[]): Promise<string> {
  const [node, nodeArgs] = rankProgram(program, args);
  const env = { ...process.env, ...plainDevice };
  return (await promisify(execFile)(node, nodeArgs, { env })).stdout;
}

let alone: Promise<string> | undefined;
function trainAlone(): Promise<string> {
  alone ??= runAlone("training", [shards, steps, "eager"]);
  return alone;
}

for (const { mpi, size, mode, only = "" } of isThorough ? thoroughRuns : runs)
  test(`${size} ranks of ${mpi}, ${mode}, have the bits of one process`, {
    skip: lacksMpi(mpi),
  }, async () => {
    const { status, output } = await runRanks({
      mpi,
      size,
      program: "training",
      args: [shards, steps, mode, only],
    });
    assert.equal(status, 0, output);
    const whole = await trainAlone();
    const expected = linesOf(whole);
    assert.equal(expected.length, 3);
    assert.match(expected[0] ?? "", /^AdamW: losses ([0-9a-f]{8} ){3}weights [0-9a-f]{64} end$/);
    assert.equal(expected[1], expected[0]?.replace("AdamW", "AdamW, split"));
    const requested = expected.filter((line) => line.startsWith(only));
    assert.deepEqual(linesOf(output).sort(), requested.flatMap((line) => new Array(size).fill(line)).sort());
    const [all = 0] = momentsIn(whole);
    assert.ok(all >= 3_200_000);
    const parts = momentsIn(output);
    assert.equal(parts.length, size);
    // Regions of 64 KiB.
    for (const part of parts)
      assert.ok(part > 0 && part < all / size + 2 * 65_536, `${parts.join()} of ${all}`);
  });

/** The losses of the first optimizer, from their bits. */
const lossesOf = (line: string): readonly number[] =>
  Array.from(line.matchAll(/\b[0-9a-f]{8}\b/g), ([hex]) => Buffer.from(hex, "hex").readFloatLE());

const defaults: readonly Run[] = [
  { mpi: "openmpi", size: 3, mode: "compiled" },
  ...(isThorough ? ([{ mpi: "mpich", size: 4, mode: "compiled" }] as const) : []),
];
for (const { mpi, size, mode } of defaults)
  test(`without the option shards, ${size} ranks of ${mpi} let the library add, and have the losses of one process`, {
    skip: lacksMpi(mpi),
  }, async () => {
    const args = [steps, mode, "AdamW, split"];
    const [alone, { status, output }] = await Promise.all([
      runAlone("training", [size, ...args]),
      runRanks({ mpi, size, program: "training", args: ["default", ...args] }),
    ]);
    assert.equal(status, 0, output);
    const lines = linesOf(output);
    assert.equal(lines.length, size);
    assert.equal(new Set(lines).size, 1, output);
    const [expected, found] = [linesOf(alone)[0] ?? "", lines[0] ?? ""].map(lossesOf);
    assert.equal(found?.length, steps);
    for (const [step, loss] of (found ?? []).entries())
      assert.ok(Math.abs(loss - (expected?.[step] ?? 0)) < 1e-5, `${found} instead of ${expected}`);
    // A bucket, and the weights that each rank has updated.
    const exchanges = output.match(/(?<=collectives )\S+(?= end)/g);
    assert.deepEqual(exchanges, new Array(size).fill("reduceScatter,allGather,allGather"));
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
