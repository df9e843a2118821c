/**
 * A buffer as the planner sees it: a box whose height (bytes) and live range are fixed, and whose offset is free. Boxes are sorted
 * by the start of their live ranges and identified by their rank in that order.
 */

import { type Lifetime, type Peak, peakOf, plannedBytes } from "../../schedule/liveness.js";

export interface Box {
  readonly first: number;
  readonly last: number;
  /** Aligned and never 0: empty buffers have no box. */
  readonly size: number;
}

/** An offset for each box, by rank. */
export interface Layout {
  readonly offsets: Float64Array;
  /** The end of the highest box. */
  readonly bytes: number;
  /** The number of boxes, gaps or tree nodes that the search visited. */
  readonly steps: number;
}

/** The boxes to place, and the peak. */
export interface Boxes {
  readonly boxes: readonly Box[];
  readonly lifetimes: readonly Lifetime[];
  readonly peak: Peak;
}

export function boxesOf(lifetimes: readonly Lifetime[]): Boxes {
  const sorted = lifetimes
    .filter(({ buffer }) => buffer.bytes > 0)
    .sort((a, b) => a.first - b.first || b.last - a.last);
  return {
    boxes: sorted.map(({ buffer, first, last }) => ({ first, last, size: plannedBytes(buffer) })),
    lifetimes: sorted,
    peak: peakOf(sorted),
  };
}

export function isLiveAt({ first, last }: Box, position: number): boolean {
  return first <= position && position <= last;
}

export function lengthOf({ first, last }: Box): number {
  return last - first + 1;
}

/** The ranks of boxes, sorted by their keys, largest first; later keys break ties. */
export function largestFirst(boxes: readonly Box[], ...measures: ((box: Box) => number)[]): number[] {
  const keys = measures.map((measure) => Float64Array.from(boxes, measure));
  return Array.from(boxes.keys()).sort((a, b) => {
    for (const key of keys) {
      const difference = (key[b] ?? 0) - (key[a] ?? 0);
      if (difference !== 0) return difference;
    }
    return a - b;
  });
}
