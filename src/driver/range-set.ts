/** A set of addresses as sorted, merged ranges: the committed ranges of a reservation. */

import { contains, endOf, overlaps, type Span, span } from "../units/index.js";

export class RangeSet {
  #ranges: Span[] = [];

  get totalBytes(): number {
    return this.#ranges.reduce((total, range) => total + range.size, 0);
  }

  covers(range: Span): boolean {
    return this.#ranges.some((existing) => contains(existing, range));
  }

  /** The first range of the set that overlaps `range`. */
  firstOverlap(range: Span): Span | undefined {
    return this.#ranges.find((existing) => overlaps(existing, range));
  }

  /** Adds a range that overlaps nothing in the set. Adjacent ranges merge, so that `covers` works across them. */
  add(range: Span): void {
    const before = this.#ranges.filter((existing) => endOf(existing) < range.address);
    const after = this.#ranges.filter((existing) => existing.address > endOf(range));
    const touching = this.#ranges.slice(before.length, this.#ranges.length - after.length);
    const start = Math.min(range.address, ...touching.map((existing) => existing.address));
    const end = Math.max(endOf(range), ...touching.map(endOf));
    this.#ranges = [...before, span(start, end - start), ...after];
  }
}
