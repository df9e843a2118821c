/** The order of additions does not depend on who adds. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { treeSum } from "./tree-sum.js";

const write = (a: string, b: string): string => `(${a}+${b})`;
const names = (count: number): string[] => Array.from({ length: count }, (_, index) => String(index));

test("the tree of a few terms", () => {
  assert.equal(treeSum(names(1), write), "0");
  assert.equal(treeSum(names(3), write), "((0+1)+2)");
  assert.equal(treeSum(names(6), write), "(((0+1)+(2+3))+(4+5))");
  assert.throws(() => treeSum([], write), /no terms/);
});

test("a rank's sum of a power of two of its terms is a node of the tree", () => {
  for (let ranks = 1; ranks <= 9; ranks++)
    for (const own of [1, 2, 4, 8]) {
      const all = names(ranks * own);
      const sums = Array.from({ length: ranks }, (_, rank) =>
        treeSum(all.slice(rank * own, (rank + 1) * own), write),
      );
      assert.equal(treeSum(sums, write), treeSum(all, write), `${ranks} ranks of ${own}`);
    }
});

test("of other counts it is not, so they must be exchanged whole", () => {
  const all = names(6);
  const sums = [treeSum(all.slice(0, 3), write), treeSum(all.slice(3), write)];
  assert.notEqual(treeSum(sums, write), treeSum(all, write));
});
