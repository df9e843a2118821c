/**
 * Who was last at some bytes: for ranges of positions, the latest place in the schedule on each branch. A tree over
 * the bytes between neighbouring bounds, so that noting and asking take logarithmic time whatever the ranges.
 */

import { none } from "./streams.js";

/** The positions at which ranges begin and end, each once, rising. */
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

export class LatestPlaces {
  readonly #bounds: Bounds;
  readonly #streams: number;
  /** A power of two: node n stands over 2n and 2n + 1, and the leaves begin here. */
  readonly #leaves: number;
  /** By node and branch: the latest that was noted for exactly all bytes of the node. */
  readonly #whole: Int32Array;
  /** By node and branch: the latest that was noted for any byte of the node, by the node itself or below it. */
  readonly #any: Int32Array;

  /** Ranges begin and end at the given bounds only. */
  constructor(bounds: Bounds, streams: number) {
    this.#bounds = bounds;
    this.#streams = streams;
    this.#leaves = 2 ** Math.ceil(Math.log2(Math.max(bounds.length, 1)));
    this.#whole = new Int32Array(2 * this.#leaves * streams).fill(none);
    this.#any = new Int32Array(2 * this.#leaves * streams).fill(none);
  }

  /** Notes that the call at a place was at these bytes, unless a later one of its branch is known to have been. */
  note(start: number, end: number, stream: number, place: number): void {
    const [first, last] = this.#leavesOf(start, end);
    this.#eachNode(first, last, (node) => {
      raise(this.#whole, node * this.#streams + stream, place);
      raise(this.#any, node * this.#streams + stream, place);
    });
    this.#eachAbove(first, last, (node) => raise(this.#any, node * this.#streams + stream, place));
  }

  /** The latest place by branch that was noted for any of these bytes, `none` where there is none. */
  latest(start: number, end: number): Int32Array {
    const [first, last] = this.#leavesOf(start, end);
    const found = new Int32Array(this.#streams).fill(none);
    const take = (places: Int32Array, node: number): void => {
      for (let stream = 0; stream < this.#streams; stream++) {
        raise(found, stream, places[node * this.#streams + stream] ?? none);
      }
    };
    this.#eachNode(first, last, (node) => take(this.#any, node));
    this.#eachAbove(first, last, (node) => take(this.#whole, node));
    return found;
  }

  /** The first and the last leaf of a range that is not empty. */
  #leavesOf(start: number, end: number): readonly [number, number] {
    return [this.#leaves + indexOf(this.#bounds, start), this.#leaves + indexOf(this.#bounds, end) - 1];
  }

  /** The fewest nodes that together make up the leaves from the first to the last. */
  #eachNode(first: number, last: number, visit: (node: number) => void): void {
    for (let low = first, high = last + 1; low < high; low >>>= 1, high >>>= 1) {
      if (low & 1) visit(low++);
      if (high & 1) visit(--high);
    }
  }

  /** Every node above one of those: each of them lies over the first leaf or over the last. */
  #eachAbove(first: number, last: number, visit: (node: number) => void): void {
    for (let low = first >>> 1, high = last >>> 1; low > 0; low >>>= 1, high >>>= 1) {
      visit(low);
      if (high !== low) visit(high);
    }
  }
}

function raise(places: Int32Array, index: number, place: number): void {
  if (place > (places[index] ?? none)) places[index] = place;
}
