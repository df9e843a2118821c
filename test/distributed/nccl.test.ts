/**
 * Data parallelism on GPUs: several processes on emulated GPUs, with a library that has NCCL's interface. The same bits as one process, and
 * faults that name the rank.
 *
 * @mostlyWaits
 */

import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { isThorough } from "../support/effort.js";
import { buildEmulator, emulatorMissing } from "../support/emulator.js";
import { type RanksResult, runProcesses } from "../support/ranks.js";

interface Fault {
  readonly fault: string;
  readonly rank: number;
  /** What the other ranks say. */
  readonly message: RegExp;
  /** Only with all tests. */
  readonly thorough?: boolean;
}

const faults: readonly Fault[] = [
  { fault: "kill", rank: 1, message: /rank 1 .* process has ended without a goodbye/i },
  {
    fault: "hang",
    rank: 1,
    message: /rank 1 .* no progress for 1\.5s while (rank 0 waits|ranks 0, 2 wait) for it/i,
  },
  {
    fault: "reject a call",
    rank: 1,
    message: /rank 1 .* has failed: allGather failed in NCCL 2\.28\.9: unhandled system error/i,
  },
  { fault: "kill", rank: 0, message: /rank 0 is lost: the connection to it has closed/i, thorough: true },
  {
    fault: "fail in NCCL",
    rank: 1,
    message: /rank 1 .* has failed: NCCL failed: internal error/i,
    thorough: true,
  },
  { fault: "hang in NCCL", rank: 1, message: /every rank has waited for its GPU for 1\.5s/i, thorough: true },
];

/** Each process has the GPU of its local rank. */
function runGpus(
  program: string,
  size: number,
  args: readonly (string | number)[],
  gpu = "",
): Promise<RanksResult> {
  const env = {
    ...{ HOLDFAST_CUDA_PATH: buildEmulator(), HOLDFAST_CAPTURE: "on" },
    EMULATOR_GPU: `devices=8${gpu}`,
  };
  return runProcesses({ program, size, args, env, withinMs: 120_000 });
}

/** Processes cost time: with `npm test` there are few. */
const size = isThorough ? 3 : 2;
const others = (rank: number): number[] =>
  Array.from({ length: size }, (_, other) => other).filter((other) => other !== rank);

const versions = [
  [size, "", "NCCL 2.28.9"],
  [2, ",ncclVersion=22602,ncclPolls=0", "NCCL 2.26.2"],
] as const;

describe("NCCL", { skip: emulatorMissing, concurrency: 2 }, () => {
  // With `npm test`, the ranks that are killed check every byte before that.
  for (const [size, settings, name] of isThorough ? versions : [])
    test(`${size} ranks of ${name} get every byte, eagerly and in a captured step`, async () => {
      const { status, output } = await runGpus("gpu-collectives", size, [3], settings);
      assert.equal(status, 0, output);
      for (let rank = 0; rank < size; rank++)
        assert.match(output, new RegExp(`rank ${rank} of ${size}: 3 rounds, ${name}`), output);
    });

  for (const { fault, rank, message, thorough } of faults)
    if (isThorough || !thorough)
      test(`the other ranks name rank ${rank} after: ${fault}`, async () => {
        const { status, output } = await runGpus("gpu-collectives", size, [1_000_000, rank, fault]);
        assert.notEqual(status, 0, output);
        for (const other of others(rank)) {
          const line = output.split("\n").find((text) => text.startsWith(`rank ${other}: RANK_LOST: `));
          assert.match(line ?? "", message, output);
        }
      });

  if (isThorough) testRareCases();

  for (const size of isThorough ? [2, 3, 4, 8] : [2])
    test(`${size} ranks of a captured training step have the bits of one process, and exchange gradients during backward`, async () => {
      const args = [24, 2];
      const [alone, together] = await Promise.all([
        runGpus("gpu-training", 1, args),
        runGpus("gpu-training", size, args),
      ]);
      const linesOf = ({ output }: RanksResult) => output.match(/\w+: losses .* end/g);
      assert.equal(together.status, 0, together.output);
      const [expected] = linesOf(alone) ?? [];
      assert.match(expected ?? alone.output, /^graph: losses ([0-9a-f]{8} ){2}weights [0-9a-f]{64} end$/);
      assert.deepEqual(linesOf(together), new Array(size).fill(expected));
      const overlaps = together.output.match(
        /7 collectives \(allToAll,allGather\) on stream 1, next to [1-9]\d* calls of backward/g,
      );
      assert.equal(overlaps?.length, size, together.output);
    });
});

function testRareCases(): void {
  for (const size of [2, 3])
    test(`without the option shards, NCCL adds the gradients of ${size} ranks during backward, and their losses are those of one process`, async () => {
      const [alone, together] = await Promise.all([
        runGpus("gpu-training", 1, [size, 3]),
        runGpus("gpu-training", size, ["default", 3]),
      ]);
      assert.equal(together.status, 0, together.output);
      const linesOf = ({ output }: RanksResult) => output.match(/graph: losses .* end/g) ?? [];
      const lines = linesOf(together);
      assert.equal(lines.length, size, together.output);
      assert.equal(new Set(lines).size, 1, together.output);
      const lossesOf = (line = ""): readonly number[] =>
        Array.from(line.matchAll(/\b[0-9a-f]{8}\b/g), ([hex]) => Buffer.from(hex, "hex").readFloatLE());
      const [expected, found] = [lossesOf(linesOf(alone)[0]), lossesOf(lines[0])];
      assert.equal(found.length, 3, together.output);
      for (const [step, loss] of found.entries())
        assert.ok(Math.abs(loss - (expected[step] ?? 0)) < 1e-5, `${found} instead of ${expected}`);
      const overlaps = together.output.match(
        /7 collectives \(reduceScatter,allGather\) on stream 1, next to [1-9]\d* calls of backward/g,
      );
      assert.equal(overlaps?.length, size, together.output);
    });

  test("where collectives can't be captured, they run between graphs: every byte arrives, and training has the same bits", async () => {
    const without = ",ncclCaptures=0";
    const { status, output } = await runGpus("gpu-collectives", 2, [2], without);
    assert.equal(status, 0, output);
    const [whole, split] = await Promise.all(
      ["", without].map((settings) => runGpus("gpu-training", 2, [24, 3], settings)),
    );
    const bitsOf = ({ output: text }: RanksResult) => text.match(/(?<=losses ).* end/g);
    assert.match(split!.output, /graphs and collectives in turn/);
    assert.doesNotMatch(whole!.output, /graphs and collectives in turn/);
    assert.equal(bitsOf(whole!)?.length, 2, whole!.output);
    assert.deepEqual(bitsOf(split!), bitsOf(whole!), split!.output);
  });

  test("late ranks get every byte", async () => {
    const { status, output } = await runGpus("gpu-collectives", 2, [2, 1, "late"]);
    assert.equal(status, 0, output);
  });

  test("ranks with one GPU, or with other versions of NCCL, are named on all of them", async () => {
    const same = await runGpus("gpu-collectives", 2, [1], ",devices=1");
    for (const rank of [0, 1])
      assert.match(
        same.output,
        new RegExp(`rank ${rank}: RANKS_DIFFER: Ranks 0 and 1 on .* have the same GPU`),
        same.output,
      );
    const other = await runProcesses({
      ...{ program: "gpu-collectives", size: 2, args: [1], withinMs: 60_000 },
      env: { HOLDFAST_CUDA_PATH: buildEmulator() },
      envOf: (rank) => ({ EMULATOR_GPU: `devices=8,ncclVersion=${22809 + rank}` }),
    });
    for (const rank of [0, 1])
      assert.match(
        other.output,
        new RegExp(`rank ${rank}: RANKS_DIFFER: Rank 1 on .* has NCCL 2\\.28\\.10, and rank 0 .* 2\\.28\\.9`),
        other.output,
      );
  });
}
