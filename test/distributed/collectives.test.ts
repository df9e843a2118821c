/** Collectives between processes on the CPU, with each MPI implementation that is installed. */

import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { isThorough } from "../support/effort.js";
import { lacksMpi, mpiNames, runRanks } from "../support/ranks.js";

const seed = isThorough ? Date.now() % 2 ** 31 : 20_261_119;

const quickRuns = [[3, 12, 2 ** 18 + 1]] as const;
const thoroughRuns = [...quickRuns, [2, 12, 2 ** 20], [2, 12, 2 ** 26], [4, 20, 2 ** 22 + 3]] as const;

for (const mpi of mpiNames)
  describe(mpi, { skip: lacksMpi(mpi) }, () => {
    for (const [size, rounds, maxBytes] of isThorough ? thoroughRuns : quickRuns)
      test(`${size} ranks get every byte of collectives up to ${maxBytes} bytes, seed ${seed}`, async () => {
        const { status, output } = await runRanks({
          ...{ mpi, size, program: "collectives" },
          args: [seed, rounds, maxBytes],
          ...{ withinMs: 180_000, env: { UCX_LOG_LEVEL: "debug", UCX_MEM_LOG_LEVEL: "debug" } },
        });
        assert.equal(status, 0, output);
        for (let rank = 0; rank < size; rank++)
          assert.match(output, new RegExp(`rank ${rank} of ${size}: ${rounds} rounds`), output);
        // UCX, if the library uses it, leaves the allocator alone.
        assert.doesNotMatch(output, /installing \w+ hook/);
      });
  });
