/**
 * First fit: places boxes in some order, each at the lowest offset where it overlaps no placed box. Tighter than the sweep for boxes
 * of many sizes, but its time grows with the number of overlapping pairs.
 */

import { beat } from "../../../units/index.js";
import type { Box, Layout } from "./boxes.js";

/** The layout, or undefined, and the steps of the search. */
export type Fit = Layout | { readonly offsets: undefined; readonly steps: number };

/** A layout smaller than `bytesBelow`, or undefined: the search stops as soon as it is too large. `pairs` of boxes overlap. */
export function fitInOrder(
  boxes: readonly Box[],
  order: readonly number[],
  bytesBelow: number,
  pairs = countPairs(boxes),
): Fit {
  const offsets = new Float64Array(boxes.length);
  const isCrowded = pairs * maxScanned > boxes.length ** 2;
  const placed = isCrowded ? new BoxesByOffset(boxes) : new BoxesByTime(boxes, offsets);
  let bytes = 0;
  for (const rank of order) {
    beat();
    const box = boxes[rank] as Box;
    const offset = placed.findLowestOffset(box);
    offsets[rank] = offset;
    bytes = Math.max(bytes, offset + box.size);
    if (bytes >= bytesBelow) return { offsets: undefined, steps: placed.steps };
    placed.add(rank, offset);
  }
  return { offsets, bytes, steps: placed.steps };
}

/**
 * A search by time visits only the boxes that overlap, and sorts them. One by offset visits all boxes below the result, and takes less
 * than a hundredth of the time for each: it is faster unless the overlapping ones are as rare.
 */
const maxScanned = 128;

/** The number of pairs of boxes whose live ranges overlap. */
export function countPairs(boxes: readonly Box[]): number {
  const lasts = Float64Array.from(boxes, ({ last }) => last).sort();
  let pairs = 0;
  let dead = 0;
  boxes.forEach(({ first }, rank) => {
    while ((lasts[dead] ?? first) < first) dead++;
    pairs += rank - dead;
  });
  return pairs;
}

/** Placed boxes in the order of their offsets. */
class BoxesByOffset {
  steps = 0;
  readonly #boxes: readonly Box[];
  #count = 0;
  readonly #starts: Float64Array;
  readonly #ends: Float64Array;
  /** Live ranges. */
  readonly #firsts: Float64Array;
  readonly #lasts: Float64Array;

  constructor(boxes: readonly Box[]) {
    this.#boxes = boxes;
    this.#starts = new Float64Array(boxes.length);
    this.#ends = new Float64Array(boxes.length);
    this.#firsts = new Float64Array(boxes.length);
    this.#lasts = new Float64Array(boxes.length);
  }

  /** The lowest offset where a box overlaps no placed one. */
  findLowestOffset({ first, last, size }: Box): number {
    const [starts, ends, firsts, lasts] = [this.#starts, this.#ends, this.#firsts, this.#lasts];
    const count = this.#count;
    let offset = 0;
    let index = 0;
    for (; index < count; index++) {
      if ((firsts[index] as number) > last || (lasts[index] as number) < first) continue;
      if ((starts[index] as number) >= offset + size) break;
      const end = ends[index] as number;
      if (end > offset) offset = end;
    }
    this.steps += index;
    return offset;
  }

  add(rank: number, offset: number): void {
    const { first, last, size } = this.#boxes[rank] as Box;
    const at = this.#countBelow(offset);
    const insert = (column: Float64Array, value: number): void => {
      column.copyWithin(at + 1, at, this.#count);
      column[at] = value;
    };
    insert(this.#starts, offset);
    insert(this.#ends, offset + size);
    insert(this.#firsts, first);
    insert(this.#lasts, last);
    this.#count++;
  }

  #countBelow(offset: number): number {
    let low = 0;
    let high = this.#count;
    while (low < high) {
      const middle = (low + high) >>> 1;
      if ((this.#starts[middle] ?? 0) < offset) low = middle + 1;
      else high = middle;
    }
    return low;
  }
}

/**
 * An interval tree of placed boxes. The leaves are all boxes by the start of their live ranges. A node keeps the latest
 * end of the placed boxes below it, so that whole subtrees can be skipped.
 */
class BoxesByTime {
  steps = 0;
  readonly #boxes: readonly Box[];
  readonly #offsets: Float64Array;
  /** The leaves follow the inner nodes. The root is 1; the children of n are 2n and 2n + 1. */
  readonly #leaves: number;
  readonly #last: Float64Array;

  constructor(boxes: readonly Box[], offsets: Float64Array) {
    this.#boxes = boxes;
    this.#offsets = offsets;
    this.#leaves = 2 ** Math.ceil(Math.log2(Math.max(1, boxes.length)));
    this.#last = new Float64Array(2 * this.#leaves).fill(Number.NEGATIVE_INFINITY);
  }

  add(rank: number): void {
    const last = this.#boxes[rank]?.last ?? 0;
    for (let node = this.#leaves + rank; node >= 1 && (this.#last[node] ?? last) < last; node >>>= 1) {
      this.#last[node] = last;
    }
  }

  /** The lowest offset where a box overlaps no placed one. */
  findLowestOffset({ first, last, size }: Box): number {
    const neighbours: number[] = [];
    this.#collect(1, 0, this.#leaves, first, this.#countUntil(last), neighbours);
    neighbours.sort((a, b) => (this.#offsets[a] ?? 0) - (this.#offsets[b] ?? 0));
    let offset = 0;
    for (const neighbour of neighbours) {
      const start = this.#offsets[neighbour] ?? 0;
      if (start >= offset + size) break;
      offset = Math.max(offset, start + (this.#boxes[neighbour]?.size ?? 0));
    }
    return offset;
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
