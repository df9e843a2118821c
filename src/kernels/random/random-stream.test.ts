/** The host's streams: frozen bits, the counter layout, ranges, and disjoint streams. */

import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { rejects } from "../../../test/support/rejects.js";
import { philox } from "./philox.js";
import { blocksOf, drawWords } from "./random-stream.js";

test("the first words of seed 42 are frozen", () => {
  assert.deepEqual(
    [...drawWords({ seed: 42, id: 0 }, 6)],
    [0x42e0b8b3, 0x7dbf5de8, 0x2fe739d4, 0x6aaf03eb, 0x220383a8, 0x6880ffbe],
  );
});

test("a word's counter is: block, use, id low, id high; its key is the seed", () => {
  const words = drawWords({ seed: 2n ** 32n * 5n + 6n, id: 2n ** 32n * 7n + 8n }, 12);
  assert.deepEqual([...words.subarray(8)], [...philox([2, 1, 8, 7], [6, 5])]);
});

test("any range of a stream can be drawn by itself", () => {
  const all = drawWords({ seed: 1, id: 2 }, 200);
  fc.assert(
    fc.property(fc.nat(100), fc.nat(100), (offset, count) => {
      assert.deepEqual(drawWords({ seed: 1, id: 2 }, count, offset), all.slice(offset, offset + count));
    }),
  );
});

test("streams of different seeds, ids and uses share no word", () => {
  const drawn = [
    drawWords({ seed: 1, id: 0 }, 400),
    drawWords({ seed: 2, id: 0 }, 400),
    drawWords({ seed: 1, id: 1 }, 400),
    drawWords({ seed: 1, id: 2n ** 32n }, 400),
    Array.from({ length: 100 }, (_, block) => blocksOf({ seed: 1, id: 0 }, "order")(block)).flat(),
    // The first draw of the device.
    Array.from({ length: 100 }, (_, block) => philox([block, 0, 0, 0], [1, 0])).flat(),
  ].flatMap((words) => [...words]);
  assert.equal(new Set(drawn).size, drawn.length);
});

test("a stream has 2³⁴ words, and drawing beyond its end is rejected", () => {
  assert.equal(drawWords({ seed: 1, id: 0 }, 3, 2 ** 34 - 3).length, 3);
  for (const [count, offset] of [
    [4, 2 ** 34 - 3],
    [-1, 0],
    [1, -1],
    [0.5, 0],
    [1, Number.NaN],
  ] as const) {
    rejects("BAD_ARGUMENT", () => drawWords({ seed: 1, id: 0 }, count, offset), /another id/);
  }
});

test("a seed or id that exceeds 64 bits, or the precision of a number, is rejected by name", () => {
  for (const wrong of [-1, 0.5, 2 ** 53, Number.NaN, -1n, 2n ** 64n]) {
    rejects("BAD_ARGUMENT", () => drawWords({ seed: wrong, id: 0 }, 1), /^The seed is/);
    rejects("BAD_ARGUMENT", () => drawWords({ seed: 0, id: wrong }, 1), /^The id of a random stream is/);
  }
  assert.deepEqual(drawWords({ seed: 7, id: 0 }, 9), drawWords({ seed: 7n, id: 0n }, 9));
  assert.equal(drawWords({ seed: 2n ** 64n - 1n, id: 2n ** 64n - 1n }, 1).length, 1);
});
