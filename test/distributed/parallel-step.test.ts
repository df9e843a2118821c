/** Steps that are compiled with the option `parallel`. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { isThorough } from "../support/effort.js";
import { lacksMpi, runRanks } from "../support/ranks.js";

for (const size of isThorough ? [2, 4] : [2])
  test(`a function that calls backward() trains ${size} ranks to the bits of parallel.backward, and what the ranks trace is compared`, {
    skip: lacksMpi("mpich"),
  }, async () => {
    const { status, output } = await runRanks({ mpi: "mpich", size, program: "parallel-step" });
    assert.equal(status, 0, output);
    const hashes = Array.from(
      output.matchAll(/(\w+) batch(?:es)?, [^:]+: ([0-9a-f]{64}) end/g),
      ([, batches, hash]) => ({
        batches,
        hash,
      }),
    );
    for (const [batches, ways] of [
      ["one", 3],
      ["two", 2],
    ] as const) {
      const found = hashes.filter((line) => line.batches === batches);
      assert.equal(found.length, ways * size);
      assert.equal(new Set(found.map(({ hash }) => hash)).size, 1, output);
    }
    assert.notEqual(hashes[0]?.hash, hashes.at(-1)?.hash);
    const errors = [
      /a model that was not sent: BAD_ARGUMENT .* Call parallel\.broadcast\(model\) on all ranks/g,
      /a recorded pass: BAD_ARGUMENT .* createGraph, .* can't be averaged/g,
      new RegExp(
        `another op on the last rank: RANKS_DIFFER The ranks differ in the work of step "step", at place \\d+: rank 0 has mean\\(.*, and rank ${size - 1} has tanh\\(f32 \\[2, 3\\]\\) `,
        "g",
      ),
      new RegExp(`no gradients on the last rank: RANKS_DIFFER .* and rank ${size - 1} has `, "g"),
      /other rows on the last rank: no error/g,
    ];
    for (const error of errors) assert.equal(output.match(error)?.length, size, output);
  });
