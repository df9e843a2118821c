/**
 * First fit: places boxes in some order, each at the lowest offset where it overlaps no placed box. Tighter than the sweep for boxes
 * of many sizes, but it visits every overlapping pair.
 */

import { beat } from "../../../units/index.js";
import type { Box, Layout } from "./boxes.js";

/** The layout, or undefined, and the steps of the search. */
export type Fit = Layout | { readonly offsets: undefined; readonly steps: number };

/** A layout smaller than `bytesBelow`, or undefined: the search stops as soon as it is too large. */
export function fitInOrder(boxes: readonly Box[], order: readonly number[], bytesBelow: number): Fit {
  const offsets = new Float64Array(boxes.length);
  const placed = new PlacedBoxes(boxes);
  let bytes = 0;
  for (const rank of order) {
    beat();
    const box = boxes[rank] as Box;
    const neighbours = placed.findOverlapping(box);
    neighbours.sort((a, b) => (offsets[a] ?? 0) - (offsets[b] ?? 0));
    let offset = 0;
    for (const neighbour of neighbours) {
      const start = offsets[neighbour] ?? 0;
      if (start >= offset + box.size) break;
      offset = Math.max(offset, start + (boxes[neighbour]?.size ?? 0));
    }
    offsets[rank] = offset;
    bytes = Math.max(bytes, offset + box.size);
    if (bytes >= bytesBelow) return { offsets: undefined, steps: placed.steps };
    placed.add(rank);
  }
  return { offsets, bytes, steps: placed.steps };
}

/**
 * An interval tree of placed boxes. The leaves are all boxes by the start of their live ranges. A node keeps the latest
 * end of the placed boxes below it, so that whole subtrees can be skipped.
 */
class PlacedBoxes {
  steps = 0;
  readonly #boxes: readonly Box[];
  /** The leaves follow the inner nodes. The root is 1; the children of n are 2n and 2n + 1. */
  readonly #leaves: number;
  readonly #last: Float64Array;

  constructor(boxes: readonly Box[]) {
    this.#boxes = boxes;
    this.#leaves = 2 ** Math.ceil(Math.log2(Math.max(1, boxes.length)));
    this.#last = new Float64Array(2 * this.#leaves).fill(Number.NEGATIVE_INFINITY);
  }

  add(rank: number): void {
    const last = this.#boxes[rank]?.last ?? 0;
    for (let node = this.#leaves + rank; node >= 1 && (this.#last[node] ?? last) < last; node >>>= 1) {
      this.#last[node] = last;
    }
  }

  /** The ranks of placed boxes whose live ranges overlap that of `box`. */
  findOverlapping({ first, last }: Box): number[] {
    const ranks: number[] = [];
    this.#collect(1, 0, this.#leaves, first, this.#countUntil(last), ranks);
    return ranks;
  }

  #collect(node: number, start: number, width: number, first: number, end: number, ranks: number[]): void {
    if (start >= end || (this.#last[node] ?? first) < first) return;
    this.steps++;
    if (width === 1) {
      ranks.push(start);
      return;
    }
    const half = width / 2;
    this.#collect(2 * node, start, half, first, end, ranks);
    this.#collect(2 * node + 1, start + half, half, first, end, ranks);
  }

  /** The number of boxes that are born at a position or before it. */
  #countUntil(position: number): number {
    let low = 0;
    let high = this.#boxes.length;
    while (low < high) {
      const middle = (low + high) >>> 1;
      if ((this.#boxes[middle]?.first ?? 0) <= position) low = middle + 1;
      else high = middle;
    }
    return low;
  }
}
