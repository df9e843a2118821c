/**
 * The last access of byte ranges: for each range, the latest schedule position on each stream. A segment tree over the bytes between
 * adjacent bounds, so that updates and queries take logarithmic time.
 */

import { none } from "./streams.js";

/** The distinct starts and ends of ranges, ascending. */
export type Bounds = Float64Array;

export function boundsOf(positions: readonly number[]): Bounds {
  const sorted = Float64Array.from(positions).sort();
  return sorted.filter((position, index) => position !== sorted[index - 1]);
}

/** The index of a position that is one of the bounds. */
export function indexOf(bounds: Bounds, position: number): number {
  let low = 0;
  let high = bounds.length - 1;
  while (low < high) {
    const middle = (low + high) >>> 1;
    if ((bounds[middle] ?? 0) < position) low = middle + 1;
    else high = middle;
  }
  return low;
}

export class LatestIndices {
  readonly #bounds: Bounds;
  readonly #streams: number;
  /** A power of two: the children of node n are 2n and 2n + 1, and the leaves start here. */
  readonly #leaves: number;
  /** By node and stream: the latest position recorded for the whole node. */
  readonly #whole: Int32Array;
  /** By node and stream: the latest position recorded for any byte of the node. */
  readonly #any: Int32Array;

  /** All ranges start and end at these bounds. */
  constructor(bounds: Bounds, streams: number) {
    this.#bounds = bounds;
    this.#streams = streams;
    this.#leaves = 2 ** Math.ceil(Math.log2(Math.max(bounds.length, 1)));
    this.#whole = new Int32Array(2 * this.#leaves * streams).fill(none);
    this.#any = new Int32Array(2 * this.#leaves * streams).fill(none);
  }

  /** Records an access of these bytes by the call at a schedule position, if no later call of its stream is recorded. */
  note(start: number, end: number, stream: number, position: number): void {
    const [first, last] = this.#leavesOf(start, end);
    this.#eachNode(first, last, (node) => {
      raise(this.#whole, node * this.#streams + stream, position);
      raise(this.#any, node * this.#streams + stream, position);
    });
    this.#eachAbove(first, last, (node) => raise(this.#any, node * this.#streams + stream, position));
  }

  /** By stream, the latest position recorded for any of these bytes, or `none`. */
  latest(start: number, end: number): Int32Array {
    const [first, last] = this.#leavesOf(start, end);
    const result = new Int32Array(this.#streams).fill(none);
    const take = (latest: Int32Array, node: number): void => {
      for (let stream = 0; stream < this.#streams; stream++) {
        raise(result, stream, latest[node * this.#streams + stream] ?? none);
      }
    };
    this.#eachNode(first, last, (node) => take(this.#any, node));
    this.#eachAbove(first, last, (node) => take(this.#whole, node));
    return result;
  }

  /** The first and the last leaf of a range that is not empty. */
  #leavesOf(start: number, end: number): readonly [number, number] {
    return [this.#leaves + indexOf(this.#bounds, start), this.#leaves + indexOf(this.#bounds, end) - 1];
  }

  /** The fewest nodes that cover the leaves from the first to the last. */
  #eachNode(first: number, last: number, visit: (node: number) => void): void {
    for (let low = first, high = last + 1; low < high; low >>>= 1, high >>>= 1) {
      if (low & 1) visit(low++);
      if (high & 1) visit(--high);
    }
  }

  /** Every ancestor of those nodes; each covers the first leaf or the last. */
  #eachAbove(first: number, last: number, visit: (node: number) => void): void {
    for (let low = first >>> 1, high = last >>> 1; low > 0; low >>>= 1, high >>>= 1) {
      visit(low);
      if (high !== low) visit(high);
    }
  }
}

function raise(latest: Int32Array, index: number, position: number): void {
  if (position > (latest[index] ?? none)) latest[index] = position;
}
