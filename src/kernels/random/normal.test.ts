/** Normal values: frozen bits, ranges, and the elementary functions that they use. */

import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { rejects } from "../../../test/support/rejects.js";
import { direction, logOfFraction, normal } from "./normal.js";
import { drawWords } from "./random-stream.js";

test("the first values of seed 42 are frozen, bit for bit", () => {
  const bits = new Uint32Array(normal({ seed: 42, id: 0 }, 8).buffer);
  assert.deepEqual(
    [...bits],
    [0xbfd167b9, 0x3db96ac5, 0xbfcb000b, 0x3f6a2dc3, 0xbfd795a2, 0x3f8c3945, 0x3f22c3de, 0xbf550bbc],
  );
});

test("any range of the values can be drawn by itself", () => {
  const all = normal({ seed: 3, id: 1 }, 130);
  fc.assert(
    fc.property(fc.nat(65), fc.nat(65), (offset, count) => {
      assert.deepEqual(normal({ seed: 3, id: 1 }, count, offset), all.slice(offset, offset + count));
    }),
  );
});

test("the logarithm and the direction agree with the engine's to the last bits, also at the limits", () => {
  const edges = [0, 1, 2, 3, 2 ** 29, 2 ** 30, 2 ** 31 - 1, 2 ** 31, 3 * 2 ** 30, 2 ** 32 - 2, 2 ** 32 - 1];
  for (const word of [...edges, ...drawWords({ seed: 5, id: 0 }, 10_000)]) {
    const log = Math.log((word + 1) / 2 ** 32);
    assert.ok(Math.abs(logOfFraction(word) - log) <= 4 * Number.EPSILON * Math.abs(log), `log at ${word}`);
    const { cosine, sine } = direction(word);
    const angle = word * (Math.PI / 2 ** 31);
    assert.ok(Math.abs(cosine - Math.cos(angle)) < 1e-15, `cosine at ${word}`);
    assert.ok(Math.abs(sine - Math.sin(angle)) < 1e-15, `sine at ${word}`);
  }
});

test("a count or an offset outside of the stream is rejected", () => {
  for (const [count, offset] of [
    [-1, 0],
    [0.5, 0],
    [1, 2 ** 34],
  ] as const) {
    rejects("BAD_ARGUMENT", () => normal({ seed: 1, id: 0 }, count, offset));
  }
});
