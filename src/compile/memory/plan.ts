/**
 * Gives every step buffer its offset, so that no two that are live together share bytes and the block that holds them all
 * is small. Several ways of placing are tried, and the smallest result is kept; one that reaches the lower bound ends the
 * search, since nothing can be smaller.
 */

import type { Buffer, Plan } from "../program/program.js";
import type { Lifetime } from "../schedule/liveness.js";
import {
  type Box,
  type Boxes,
  boxesOf,
  isLiveAt,
  type Layout,
  largestFirst,
  lengthOf,
} from "./layout/boxes.js";
import { fitInOrder } from "./layout/fit.js";
import { sweepFromPeak } from "./layout/sweep.js";

/**
 * Orders are tried where no more pairs of buffers than this are live together; two thousand that all are come to it.
 * Beyond it the sweep's layout stands, which is closest to the bound where most is live.
 */
const affordablePairs = 2 ** 21;

/** Offsets for buffers with these lifetimes, on 256 bytes each. A buffer of no bytes gets 0 and takes nothing. */
export function planMemory(lifetimes: readonly Lifetime[]): Plan {
  return searchPlan(lifetimes).plan;
}

/** The plan, and how many steps the search for it has taken. */
export function searchPlan(lifetimes: readonly Lifetime[]): { readonly plan: Plan; readonly steps: number } {
  const given = boxesOf(lifetimes);
  const { offsets, bytes, steps } = searchLayout(given);
  const planned = new Map<Buffer, number>(lifetimes.map(({ buffer }) => [buffer, 0]));
  given.lifetimes.forEach(({ buffer }, rank) => {
    planned.set(buffer, offsets[rank] ?? 0);
  });
  return { plan: { bytes, offsets: planned }, steps };
}

function searchLayout(given: Boxes): Layout {
  const { boxes, peak } = given;
  let best = sweepFromPeak(given);
  let { steps } = best;
  const orders = countPairs(boxes) <= affordablePairs ? fittingOrders(given) : [];
  for (const order of orders) {
    if (best.bytes === peak.bytes) break;
    const fit = fitInOrder(boxes, order(), best.bytes);
    steps += fit.steps;
    if (fit.offsets !== undefined) best = fit;
  }
  return { ...best, steps };
}

/** How many pairs of boxes are live together. */
function countPairs(boxes: readonly Box[]): number {
  const lasts = Float64Array.from(boxes, ({ last }) => last).sort();
  let pairs = 0;
  let dead = 0;
  boxes.forEach(({ first }, rank) => {
    while ((lasts[dead] ?? first) < first) dead++;
    pairs += rank - dead;
  });
  return pairs;
}

/** Large boxes first, because small ones find gaps; what crosses the peak before the rest, because there memory is scarce. */
function fittingOrders({ boxes, peak }: Boxes): (() => number[])[] {
  const size = (box: Box): number => box.size;
  const area = (box: Box): number => box.size * lengthOf(box);
  const lengthAtPeak = (box: Box): number => (isLiveAt(box, peak.place) ? lengthOf(box) : 0);
  return [
    () => largestFirst(boxes, lengthAtPeak, size, lengthOf),
    () => largestFirst(boxes, size, lengthOf),
    () => largestFirst(boxes, lengthAtPeak, area),
    () => largestFirst(boxes, area),
  ];
}
