/** A set of addresses kept as sorted, merged ranges: which parts of a reservation have memory behind them. */

import { contains, endOf, overlaps, type Span, span } from "../units/index.js";

export class RangeSet {
  #ranges: Span[] = [];

  get totalBytes(): number {
    return this.#ranges.reduce((total, range) => total + range.size, 0);
  }

  covers(range: Span): boolean {
    return this.#ranges.some((own) => contains(own, range));
  }

  /** The first own range that shares bytes with `range`. */
  firstOverlap(range: Span): Span | undefined {
    return this.#ranges.find((own) => overlaps(own, range));
  }

  /** Adds a range that overlaps nothing in the set; neighbours that touch become one, so that `covers` sees across. */
  add(range: Span): void {
    const before = this.#ranges.filter((own) => endOf(own) < range.address);
    const behind = this.#ranges.filter((own) => own.address > endOf(range));
    const touching = this.#ranges.slice(before.length, this.#ranges.length - behind.length);
    const start = Math.min(range.address, ...touching.map((own) => own.address));
    const end = Math.max(endOf(range), ...touching.map(endOf));
    this.#ranges = [...before, span(start, end - start), ...behind];
  }
}
