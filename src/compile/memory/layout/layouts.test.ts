/** Each way of placing by itself: the planner keeps only the best, so a faulty one could hide behind another. */

import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { findClash, randomLifetimes, someLifetimes } from "../../../../test/support/random-lifetimes.js";
import type { Lifetime } from "../../schedule/liveness.js";
import { type Boxes, boxesOf, type Layout, largestFirst } from "./boxes.js";
import { fitInOrder } from "./fit.js";
import { sweepFromPeak } from "./sweep.js";

function clashOf({ lifetimes }: Boxes, { offsets, bytes }: Layout): string | undefined {
  const planned = new Map(lifetimes.map(({ buffer }, rank) => [buffer, offsets[rank]!]));
  return findClash(lifetimes, { bytes, offsets: planned });
}

function fit(given: Boxes, order: readonly number[], bytesBelow = Number.POSITIVE_INFINITY): Layout {
  const found = fitInOrder(given.boxes, order, bytesBelow);
  assert.ok(found.offsets !== undefined);
  return found;
}

/** How many times the steps eight times the lifetimes take, as a part of what n·log n would make of it. */
function growthOf(
  steps: (lifetimes: readonly Lifetime[]) => number,
  count: number,
  typicalLength: (count: number) => number,
): number {
  const stepsFor = (n: number): number => steps(randomLifetimes(n, typicalLength(n), 7)) / (n * Math.log2(n));
  return stepsFor(8 * count) / stepsFor(count);
}

test("a sweep from the peak keeps apart what is live together", () => {
  fc.assert(
    fc.property(someLifetimes, (lifetimes) => {
      const given = boxesOf(lifetimes);
      assert.equal(clashOf(given, sweepFromPeak(given)), undefined);
    }),
    { numRuns: 1000 },
  );
});

test("a fit keeps apart what is live together, in whatever order", () => {
  fc.assert(
    fc.property(someLifetimes, fc.infiniteStream(fc.nat()), (lifetimes, keys) => {
      const given = boxesOf(lifetimes);
      const drawn = new Map(given.boxes.map((box) => [box, keys.next().value as number]));
      const order = largestFirst(given.boxes, (box) => drawn.get(box)!);
      assert.equal(clashOf(given, fit(given, order)), undefined);
    }),
    { numRuns: 1000 },
  );
});

test("a fit is given up once it takes as much as the layout that there is", () => {
  const given = boxesOf(randomLifetimes(50, 10, 3));
  const order = given.boxes.map((_, rank) => rank);
  const { bytes, steps } = fit(given, order);
  assert.equal(fit(given, order, bytes + 1).bytes, bytes);
  const rejected = fitInOrder(given.boxes, order, bytes);
  assert.equal(rejected.offsets, undefined);
  assert.ok(rejected.steps <= steps);
});

test("a sweep's steps grow as n·log n, also where half of all boxes are live together", () => {
  const steps = (lifetimes: readonly Lifetime[]): number => sweepFromPeak(boxesOf(lifetimes)).steps;
  for (const typicalLength of [() => 8, (count: number) => count]) {
    const growth = growthOf(steps, 2500, typicalLength);
    assert.ok(growth < 1.25, `${growth} times n·log n`);
  }
});

test("a fit's steps grow as n·log n where few boxes are live together, and faster where many are", () => {
  const steps = (lifetimes: readonly Lifetime[]): number => {
    const given = boxesOf(lifetimes);
    const order = largestFirst(given.boxes, ({ size }) => size);
    return fit(given, order).steps;
  };
  const growth = growthOf(steps, 2500, () => 8);
  assert.ok(growth < 1.25, `${growth} times n·log n`);
  // The count can tell: this is what the planner must not pay.
  const crowded = growthOf(steps, 250, (count) => count / 4);
  assert.ok(crowded > 4, `${crowded} times n·log n`);
});
