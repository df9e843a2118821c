/**
 * The book of reserved address ranges: which there are, which parts of them have memory, and the rejections that every
 * driver gives in the same words.
 */

import { HoldfastError } from "../errors/index.js";
import { type Bytes, contains, formatBytes, formatSpan, type Span } from "../units/index.js";
import { RangeSet } from "./range-set.js";

interface Reservation {
  readonly range: Span;
  committed: RangeSet;
}

export class Reservations {
  readonly #granularity: number;
  /** In the order of their addresses. */
  readonly #list: Reservation[] = [];
  /** Where `holds` found its last range: work mostly stays in one. */
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
    const behind = this.#list.findIndex((one) => one.range.address > range.address);
    this.#list.splice(behind < 0 ? this.#list.length : behind, 0, { range, committed: new RangeSet() });
  }

  /** Rejects a part that can't be committed: outside every reservation, off the granularity, or committed before. */
  requireCommittable(part: Span): void {
    const owner = this.#ownerOf(part);
    const numbers = { address: part.address, size: part.size };
    if (!owner) {
      const message = `Commit of ${formatSpan(part)}: it lies in none of the ${this.#list.length} reservations. Commit inside the span that reserve() returned.`;
      throw new HoldfastError("NOT_OWNER", message, { numbers });
    }
    if (part.address % this.#granularity !== 0 || part.size % this.#granularity !== 0 || part.size === 0) {
      const message = `Commit of ${formatSpan(part)}: address and size must be multiples of the granularity, ${formatBytes(this.#granularity)}, and the size not 0.`;
      throw new HoldfastError("BAD_ARGUMENT", message, { numbers });
    }
    const taken = owner.committed.firstOverlap(part);
    if (!taken) return;
    const message = `Commit of ${formatSpan(part)}: ${formatSpan(taken)} is committed already. Commit each part once.`;
    throw new HoldfastError("BAD_ARGUMENT", message, { numbers });
  }

  noteCommitted(part: Span): void {
    this.#ownerOf(part)?.committed.add(part);
  }

  /** The range is still reserved, and the memory behind it is going. */
  noteEmptied(reservation: Span): void {
    const owner = this.#list[this.#indexOf(reservation)];
    if (owner) owner.committed = new RangeSet();
  }

  /** Rejects a span that is no whole reservation. */
  requireReserved(reservation: Span): void {
    this.#indexOf(reservation);
  }

  remove(reservation: Span): void {
    this.#list.splice(this.#indexOf(reservation), 1);
    this.#last = undefined;
  }

  /** Is there memory behind every byte of the range? */
  holds(range: Span): boolean {
    if (range.size === 0) return true;
    if (!this.#last || !contains(this.#last.range, range)) this.#last = this.#ownerOf(range);
    return this.#last?.committed.covers(range) ?? false;
  }

  #ownerOf(part: Span): Reservation | undefined {
    return this.#list.find(({ range }) => contains(range, part));
  }

  #indexOf({ address, size }: Span): number {
    const index = this.#list.findIndex(({ range }) => range.address === address && range.size === size);
    if (index >= 0) return index;
    const message = `Release of ${formatSpan({ address, size })}: no such reservation. It was released before, or is not the whole span that reserve() returned.`;
    throw new HoldfastError("NOT_OWNER", message, { numbers: { address, size } });
  }
}

/** Rejects a reservation of no bytes. */
export function requireReservable(size: Bytes): void {
  if (Number.isSafeInteger(size) && size > 0) return;
  const message = `A reservation of ${size} bytes was asked; ask for a whole number of bytes, 1 or more.`;
  throw new HoldfastError("BAD_SIZE", message, { numbers: { size } });
}
