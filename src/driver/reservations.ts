/** The reserved address ranges, their committed ranges, and the errors that all drivers share. */

import { HoldfastError } from "../errors/index.js";
import { type Bytes, contains, formatBytes, formatSpan, type Span } from "../units/index.js";
import { RangeSet } from "./range-set.js";

interface Reservation {
  readonly range: Span;
  committed: RangeSet;
}

export class Reservations {
  readonly #granularity: number;
  /** Sorted by address. */
  readonly #list: Reservation[] = [];
  /** The range of the last hit in `holds`: accesses mostly stay in one. */
  #last: Reservation | undefined;

  constructor(granularity: number) {
    this.#granularity = granularity;
  }

  get ranges(): readonly Span[] {
    return this.#list.map(({ range }) => range);
  }

  get committedBytes(): number {
    return this.#list.reduce((total, { committed }) => total + committed.totalBytes, 0);
  }

  add(range: Span): void {
    const next = this.#list.findIndex((entry) => entry.range.address > range.address);
    this.#list.splice(next < 0 ? this.#list.length : next, 0, { range, committed: new RangeSet() });
  }

  /** Rejects a range that cannot be committed: outside every reservation, misaligned, or already committed. */
  requireCommittable(range: Span): void {
    const owner = this.#findReservation(range);
    const numbers = { address: range.address, size: range.size };
    if (!owner) {
      const message = `Cannot commit ${formatSpan(range)}: it is in none of the ${this.#list.length} reservations. Pass a range inside a span that reserve() returned.`;
      throw new HoldfastError("NOT_OWNER", message, { numbers });
    }
    if (range.address % this.#granularity !== 0 || range.size % this.#granularity !== 0 || range.size === 0) {
      const message = `Cannot commit ${formatSpan(range)}: address and size must be multiples of the granularity, ${formatBytes(this.#granularity)}, and the size must not be 0.`;
      throw new HoldfastError("BAD_ARGUMENT", message, { numbers });
    }
    const overlap = owner.committed.firstOverlap(range);
    if (!overlap) return;
    const message = `Cannot commit ${formatSpan(range)}: ${formatSpan(overlap)} is already committed. Commit each range once.`;
    throw new HoldfastError("BAD_ARGUMENT", message, { numbers });
  }

  noteCommitted(range: Span): void {
    this.#findReservation(range)?.committed.add(range);
  }

  /** The range stays reserved, but its memory is released. */
  noteEmptied(reservation: Span): void {
    const owner = this.#list[this.#indexOf(reservation)];
    if (owner) owner.committed = new RangeSet();
  }

  /** Rejects a span that is not a whole reservation. */
  requireReserved(reservation: Span): void {
    this.#indexOf(reservation);
  }

  remove(reservation: Span): void {
    this.#list.splice(this.#indexOf(reservation), 1);
    this.#last = undefined;
  }

  /** True if every byte of the range is committed. */
  holds(range: Span): boolean {
    if (range.size === 0) return true;
    if (!this.#last || !contains(this.#last.range, range)) this.#last = this.#findReservation(range);
    return this.#last?.committed.covers(range) ?? false;
  }

  #findReservation(target: Span): Reservation | undefined {
    return this.#list.find(({ range }) => contains(range, target));
  }

  #indexOf({ address, size }: Span): number {
    const index = this.#list.findIndex(({ range }) => range.address === address && range.size === size);
    if (index >= 0) return index;
    const message = `Cannot release ${formatSpan({ address, size })}: no such reservation. Pass the whole span that reserve() returned, once.`;
    throw new HoldfastError("NOT_OWNER", message, { numbers: { address, size } });
  }
}

/** Rejects an empty reservation. */
export function requireReservable(size: Bytes): void {
  if (Number.isSafeInteger(size) && size > 0) return;
  const message = `Cannot reserve ${size} bytes. Pass a whole number of bytes, 1 or more.`;
  throw new HoldfastError("BAD_SIZE", message, { numbers: { size } });
}
