/**
 * A buffer as the planner sees it: so many bytes from one place to another, a box of which only its offset is free. Boxes
 * are sorted by their first place and known by their rank in that order.
 */

import { type Lifetime, type Peak, peakOf, plannedBytes } from "../../schedule/liveness.js";

export interface Box {
  readonly first: number;
  readonly last: number;
  /** Aligned, never 0: what takes no bytes is no box. */
  readonly size: number;
}

/** An offset for each box, by rank. */
export interface Layout {
  readonly offsets: Float64Array;
  /** The end of the highest box. */
  readonly bytes: number;
  /** How many boxes, gaps or nodes of a tree were looked at to find it. */
  readonly steps: number;
}

/** What there is to place, and the place where the most of it is live. */
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

export function isLiveAt({ first, last }: Box, place: number): boolean {
  return first <= place && place <= last;
}

export function lengthOf({ first, last }: Box): number {
  return last - first + 1;
}

/** The ranks of boxes, sorted by numbers of theirs, largest first: the second decides where the first are equal, and so on. */
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
