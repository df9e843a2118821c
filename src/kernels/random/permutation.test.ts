/** Permutations: each element once, and frozen orders. */

import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { rejects } from "../../../test/support/rejects.js";
import { permutation } from "./permutation.js";

test("the first order of seed 42 is frozen", () => {
  assert.deepEqual([...permutation({ seed: 42, id: 0 }, 10)], [2, 3, 8, 1, 0, 5, 7, 4, 6, 9]);
});

test("a permutation contains every element once", () => {
  fc.assert(
    fc.property(fc.nat(500), fc.nat(1000), (n, seed) => {
      const sorted = permutation({ seed, id: 0 }, n).sort();
      assert.deepEqual([...sorted], [...Array(n).keys()]);
    }),
  );
});

test("another epoch has another order, and the same epoch the same order", () => {
  const first = permutation({ seed: 1, id: 0 }, 100);
  assert.notDeepEqual(permutation({ seed: 1, id: 1 }, 100), first);
  assert.deepEqual(permutation({ seed: 1, id: 0 }, 100), first);
});

test("a count that is not a valid array length is rejected", () => {
  for (const n of [-1, 1.5, Number.NaN, 2 ** 32]) {
    rejects("BAD_ARGUMENT", () => permutation({ seed: 1, id: 0 }, n), /Cannot permute/);
  }
});
