/**
 * Faults of ranks: the others name the rank and end by themselves, with an exit code of their own. MPICH's launcher ends the other ranks
 * at once if one is killed, so there only the end is tested.
 */

import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { isThorough } from "../support/effort.js";
import { lacksMpi, mpiNames, runRanks } from "../support/ranks.js";

interface Fault {
  readonly fault: string;
  readonly rank: number;
  /** What the other ranks say. */
  readonly message: RegExp;
  readonly code?: "RANK_LOST" | "RANKS_DIFFER";
  /** The launcher of MPICH is faster than the other ranks. */
  readonly isKill?: boolean;
}

const faults: readonly Fault[] = [
  { fault: "kill", rank: 1, message: /rank 1 .* process has ended without a goodbye/i, isKill: true },
  { fault: "kill", rank: 0, message: /rank 0 is lost: the connection to it has closed/i, isKill: true },
  { fault: "stop", rank: 2, message: /rank 2 .* has sent nothing for 1\.5s/i },
  { fault: "hang", rank: 1, message: /rank 1 .* no progress for 1\.5s while ranks 0, 2 wait for it/i },
  { fault: "throw", rank: 0, message: /rank 0 .* has failed: the data of this rank are bad/i },
  { fault: "exit", rank: 2, message: /rank 2 .* has failed: its process ends with exit code 7/i },
  {
    fault: "differ in exchange",
    rank: 2,
    message: /rank 1 exchanges plan, rank 2 exchanges weights/i,
    code: "RANKS_DIFFER",
  },
];

/** With every `npm test`. */
const quick: ReadonlySet<string> = new Set(["openmpi kill 1", "openmpi stop 2", "mpich hang 1"]);

test("the phase is named in which a rank does nothing", { skip: lacksMpi("openmpi") }, async () => {
  const { status, output } = await runRanks({
    ...{ mpi: "openmpi", size: 2, program: "training", args: [2, 1, "hang"], withinMs: 30_000 },
  });
  assert.notEqual(status, 0, output);
  assert.match(
    output,
    /rank 0 of 2: rank 1 .* no progress for 1\.5s while rank 0 waits for it\. .* step \d+/,
  );
});

for (const mpi of mpiNames)
  describe(mpi, { skip: lacksMpi(mpi) }, () => {
    for (const { fault, rank, message, code = "RANK_LOST", isKill } of faults) {
      if (!isThorough && !quick.has(`${mpi} ${fault} ${rank}`)) continue;
      test(`the other ranks name rank ${rank} after: ${fault}`, async () => {
        const { status, output } = await runRanks({
          ...{ mpi, size: 3, program: "faults", args: [rank, fault] },
          withinMs: 30_000,
        });
        assert.notEqual(status, 0, output);
        assert.match(output, new RegExp(`rank ${rank}: ${fault}`));
        if (mpi === "mpich" && isKill) return;
        for (const other of [0, 1, 2].filter((index) => index !== rank)) {
          const line = output.split("\n").find((text) => text.includes(`rank ${other}: ${code}: `));
          assert.match(line ?? "", message, output);
        }
      });
    }
  });
