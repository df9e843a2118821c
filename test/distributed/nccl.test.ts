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

describe("NCCL", { skip: emulatorMissing }, () => {
  for (const [size, settings, name] of [
    [3, "", "NCCL 2.28.9"],
    [2, ",ncclVersion=22602,ncclPolls=0", "NCCL 2.26.2"],
  ] as const)
    test(`${size} ranks of ${name} get every byte, eagerly and in a captured step`, async () => {
      const { status, output } = await runGpus("gpu-collectives", size, [3], settings);
      assert.equal(status, 0, output);
      for (let rank = 0; rank < size; rank++)
        assert.match(output, new RegExp(`rank ${rank} of ${size}: 3 rounds, ${name}`), output);
    });

  for (const size of isThorough ? [2, 3, 4] : [2])
    test(`${size} ranks of a captured training step have the bits of one process`, async () => {
      const args = [12, 2];
      const [alone, together] = await Promise.all([
        runGpus("gpu-training", 1, args),
        runGpus("gpu-training", size, args),
      ]);
      const linesOf = ({ output }: RanksResult) => output.match(/\w+: losses .* end/g);
      assert.equal(together.status, 0, together.output);
      const [expected] = linesOf(alone) ?? [];
      assert.match(expected ?? alone.output, /^graph: losses ([0-9a-f]{8} ){2}weights [0-9a-f]{64} end$/);
      assert.deepEqual(linesOf(together), new Array(size).fill(expected));
    });
});
