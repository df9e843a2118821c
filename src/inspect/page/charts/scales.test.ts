/** Zooming keeps the point under the pointer and stays in the whole range; ticks are round. */

import assert from "node:assert/strict";
import test from "node:test";
import * as fc from "fast-check";
import { byteTicks, isSameRange, moveRange, outlierLimit, roundTicks, zoomRange } from "./scales.js";

const whole = { min: 0, max: 1000 };

test("zooming in keeps its center in place", () => {
  assert.deepEqual(zoomRange(whole, 250, 0.5, whole, 1), { min: 125, max: 625 });
});

test("zooming out ends at the whole range, zooming in at the min. width", () => {
  assert.deepEqual(zoomRange({ min: 100, max: 200 }, 150, 100, whole, 1), whole);
  const { min, max } = zoomRange({ min: 100, max: 200 }, 150, 1e-9, whole, 4);
  assert.equal(max - min, 4);
});

test("no zoom and no move leaves the whole range", () => {
  const inside = fc.double({ min: 0, max: 1000, noNaN: true });
  fc.assert(
    fc.property(
      inside,
      inside,
      fc.double({ min: 0.01, max: 100, noNaN: true }),
      inside,
      (a, b, factor, by) => {
        const range = { min: Math.min(a, b), max: Math.max(a, b) };
        const zoomed = zoomRange(range, (a + b) / 2, factor, whole, 1);
        for (const { min, max } of [zoomed, moveRange(zoomed, by - 500, whole)]) {
          assert.ok(min >= -1e-9 && max <= 1000 + 1e-9 && max > min, `${min} to ${max}`);
        }
      },
    ),
  );
});

test("a move at the border keeps the width", () => {
  assert.deepEqual(moveRange({ min: 900, max: 980 }, 50, whole), { min: 920, max: 1000 });
});

test("ranges with equal numbers are the same; so are two undefined ranges", () => {
  assert.ok(isSameRange({ min: 0, max: 1 }, { min: 0, max: 1 }));
  assert.ok(isSameRange(undefined, undefined));
  assert.ok(!isSameRange(undefined, { min: 0, max: 1 }));
});

test("ticks are round numbers inside of the range", () => {
  assert.deepEqual(roundTicks({ min: 0, max: 10 }, 5), [0, 2, 4, 6, 8, 10]);
  assert.deepEqual(roundTicks({ min: 0.03, max: 0.31 }, 3), [0.1, 0.2, 0.3]);
  assert.deepEqual(roundTicks({ min: 3, max: 3 }, 3), [3]);
});

test("ticks of sizes are powers of two apart", () => {
  const MiB = 1024 ** 2;
  assert.deepEqual(byteTicks({ min: 0, max: 7 * MiB }, 4), [0, 2 * MiB, 4 * MiB, 6 * MiB]);
});

test("an axis ends at three times the 95th percentile, and above all values if there are no outliers", () => {
  const plain = Array.from({ length: 100 }, (_, index) => index + 1);
  assert.ok(outlierLimit(plain) >= 100);
  assert.equal(outlierLimit([...plain.map(() => 2), 8000, 2400]), 6);
  assert.equal(outlierLimit([null, undefined, Number.NaN]), Infinity);
  assert.equal(outlierLimit([5]), 15);
});
