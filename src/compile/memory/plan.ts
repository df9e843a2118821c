/**
 * The memory planner: gives every step buffer an offset, so that buffers with overlapping live ranges share no bytes. It tries several
 * layouts and keeps the smallest. A layout that reaches the lower bound ends the search.
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
import { countPairs, fitInOrder } from "./layout/fit.js";
import { sweepFromPeak } from "./layout/sweep.js";

/**
 * Fitting orders are tried up to this many overlapping pairs, as two thousand buffers with one common call have. Beyond it the sweep's
 * layout is used, which is close to the bound if most buffers are live at the peak.
 */
const affordablePairs = 2 ** 21;

/** Offsets, aligned to 256 bytes, for buffers with these live ranges. A buffer of no bytes gets 0. */
export function planMemory(lifetimes: readonly Lifetime[]): Plan {
  return searchPlan(lifetimes).plan;
}

/** The plan, and the number of search steps. */
export function searchPlan(lifetimes: readonly Lifetime[]): { readonly plan: Plan; readonly steps: number } {
  const sorted = boxesOf(lifetimes);
  const { offsets, bytes, steps } = searchLayout(sorted);
  const planned = new Map<Buffer, number>(lifetimes.map(({ buffer }) => [buffer, 0]));
  sorted.lifetimes.forEach(({ buffer }, rank) => {
    planned.set(buffer, offsets[rank] ?? 0);
  });
  return { plan: { bytes, offsets: planned }, steps };
}

function searchLayout(sorted: Boxes): Layout {
  const { boxes, peak } = sorted;
  let best = sweepFromPeak(sorted);
  let { steps } = best;
  const pairs = countPairs(boxes);
  const orders = pairs <= affordablePairs ? fittingOrders(sorted) : [];
  for (const order of orders) {
    if (best.bytes === peak.bytes) break;
    const fit = fitInOrder(boxes, order(), best.bytes, pairs);
    steps += fit.steps;
    if (fit.offsets !== undefined) best = fit;
  }
  return { ...best, steps };
}

/** Large boxes first, because small ones fit into gaps; boxes across the peak before the rest, because memory is scarce there. */
function fittingOrders({ boxes, peak }: Boxes): (() => number[])[] {
  const size = (box: Box): number => box.size;
  const area = (box: Box): number => box.size * lengthOf(box);
  const lengthAtPeak = (box: Box): number => (isLiveAt(box, peak.position) ? lengthOf(box) : 0);
  return [
    () => largestFirst(boxes, lengthAtPeak, size, lengthOf),
    () => largestFirst(boxes, size, lengthOf),
    () => largestFirst(boxes, lengthAtPeak, area),
    () => largestFirst(boxes, area),
  ];
}
