/** What DataParallel rejects, and how it cuts batches. Several processes are tested in test/distributed. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { rejects } from "../../test/support/rejects.js";
import type { World } from "../distributed/index.js";
import { DataParallel } from "./data-parallel.js";

const rankOf = (rank: number, size: number): World => ({ rank, size }) as World;

test("shards must be a multiple of the ranks", () => {
  for (const shards of [0, 1, 3, 2.5])
    rejects("BAD_ARGUMENT", () => new DataParallel(rankOf(0, 2), { shards }), /on 2 ranks: pass a multiple/);
  assert.equal(new DataParallel(rankOf(0, 2)).shards, 2);
});

test("the shards of all ranks cover a batch in order, and differ by at most one row", () => {
  for (const [size, shards] of [
    [1, 8],
    [2, 8],
    [4, 12],
  ] as const)
    for (let rows = 0; rows < 40; rows++) {
      const ranges = Array.from({ length: size }, (_, rank) =>
        new DataParallel(rankOf(rank, size), { shards }).ownRanges(rows),
      ).flat();
      assert.equal(ranges.length, shards);
      let next = 0;
      for (const { start, end } of ranges) {
        assert.equal(start, next);
        assert.ok(end - start === Math.floor(rows / shards) || end - start === Math.ceil(rows / shards));
        next = end;
      }
      assert.equal(next, rows);
    }
});
