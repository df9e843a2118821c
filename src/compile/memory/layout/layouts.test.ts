/** Each layout algorithm by itself: the planner keeps only the best layout, which could hide a fault of another. */

import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { effort } from "../../../../test/support/effort.js";
import { findClash, randomLifetimes, someLifetimes } from "../../../../test/support/random-lifetimes.js";
import type { Lifetime } from "../../schedule/liveness.js";
import { type Boxes, boxesOf, type Layout, largestFirst } from "./boxes.js";
import { fitInOrder } from "./fit.js";
import { sweepFromPeak } from "./sweep.js";

function clashOf({ lifetimes }: Boxes, { offsets, bytes }: Layout): string | undefined {
  const planned = new Map(lifetimes.map(({ buffer }, rank) => [buffer, offsets[rank]!]));
  return findClash(lifetimes, { bytes, offsets: planned });
}

function fit(sorted: Boxes, order: readonly number[], bytesBelow = Number.POSITIVE_INFINITY): Layout {
  const layout = fitInOrder(sorted.boxes, order, bytesBelow);
  assert.ok(layout.offsets !== undefined);
  return layout;
}

const boxCount = effort({ quick: 600, thorough: 2500 });

/** The growth of the steps for eight times the live ranges, relative to n·log n. */
function growthOf(
  steps: (lifetimes: readonly Lifetime[]) => number,
  count: number,
  typicalLength: (count: number) => number,
): number {
  const stepsFor = (n: number): number => steps(randomLifetimes(n, typicalLength(n), 7)) / (n * Math.log2(n));
  return stepsFor(8 * count) / stepsFor(count);
}

test("a sweep from the peak separates buffers that are live at the same time", () => {
  fc.assert(
    fc.property(someLifetimes, (lifetimes) => {
      const sorted = boxesOf(lifetimes);
      assert.equal(clashOf(sorted, sweepFromPeak(sorted)), undefined);
    }),
    { numRuns: effort({ quick: 200, thorough: 1000 }) },
  );
});

test("a fit in any order separates buffers that are live at the same time", () => {
  fc.assert(
    fc.property(someLifetimes, fc.infiniteStream(fc.nat()), (lifetimes, keys) => {
      const sorted = boxesOf(lifetimes);
      const randomKeys = new Map(sorted.boxes.map((box) => [box, keys.next().value as number]));
      const order = largestFirst(sorted.boxes, (box) => randomKeys.get(box)!);
      assert.equal(clashOf(sorted, fit(sorted, order)), undefined);
    }),
    { numRuns: effort({ quick: 200, thorough: 1000 }) },
  );
});

test("a search by time and one by offset find the same layout", () => {
  fc.assert(
    fc.property(someLifetimes, (lifetimes) => {
      const { boxes } = boxesOf(lifetimes);
      const order = largestFirst(boxes, ({ size }) => size);
      const [byTime, byOffset] = [0, Infinity].map((pairs) => fitInOrder(boxes, order, Infinity, pairs));
      assert.deepEqual(byTime?.offsets, byOffset?.offsets);
    }),
    { numRuns: effort({ quick: 200, thorough: 1000 }) },
  );
});

test("a fit stops once it is as large as the best layout", () => {
  const sorted = boxesOf(randomLifetimes(50, 10, 3));
  const order = sorted.boxes.map((_, rank) => rank);
  const { bytes, steps } = fit(sorted, order);
  assert.equal(fit(sorted, order, bytes + 1).bytes, bytes);
  const rejected = fitInOrder(sorted.boxes, order, bytes);
  assert.equal(rejected.offsets, undefined);
  assert.ok(rejected.steps <= steps);
});

test("the steps of a sweep grow as n·log n, even if half of all boxes are live at the same time", () => {
  const steps = (lifetimes: readonly Lifetime[]): number => sweepFromPeak(boxesOf(lifetimes)).steps;
  for (const typicalLength of [() => 8, (count: number) => count]) {
    const growth = growthOf(steps, boxCount, typicalLength);
    assert.ok(growth < 1.25, `${growth} times n·log n`);
  }
});

test("the steps of a fit grow as n·log n if few boxes are live at the same time, and faster if many are", () => {
  const steps = (lifetimes: readonly Lifetime[]): number => {
    const sorted = boxesOf(lifetimes);
    const order = largestFirst(sorted.boxes, ({ size }) => size);
    return fit(sorted, order).steps;
  };
  const growth = growthOf(steps, boxCount, () => 8);
  assert.ok(growth < 1.25, `${growth} times n·log n`);
  // Shows that the count can fail: the planner must avoid this growth.
  const crowded = growthOf(steps, 250, (count) => count / 4);
  assert.ok(crowded > 4, `${crowded} times n·log n`);
});
