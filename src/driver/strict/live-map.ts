/** Tracks which device bytes are reserved, committed and live, in units of 256 bytes. */

import { HoldfastError } from "../../errors/index.js";
import { contains, formatSpan, type Span } from "../../units/index.js";

const unitBytes = 256;

const committed = 1;
const live = 2;

interface Reservation {
  readonly range: Span;
  /** One byte per unit: 0 (reserved), `committed` or `live`; grown to the highest committed unit. */
  units: Uint8Array;
}

export class LiveMap {
  readonly #reservations: Reservation[] = [];

  reserve(range: Span): void {
    this.#reservations.push({ range, units: new Uint8Array(0) });
  }

  release(range: Span): void {
    const index = this.#reservations.findIndex((entry) => entry.range.address === range.address);
    if (index >= 0) this.#reservations.splice(index, 1);
  }

  commit(range: Span): void {
    const reservation = this.#find(range, "commit");
    const [first, end] = toUnits(reservation, range);
    if (end > reservation.units.length) {
      const larger = new Uint8Array(Math.max(end, 2 * reservation.units.length));
      larger.set(reservation.units);
      reservation.units = larger;
    }
    reservation.units.fill(committed, first, end);
  }

  annotate(range: Span, state: "live" | "dead"): void {
    const reservation = this.#find(range, `annotate ${state}`);
    const [first, end] = toUnits(reservation, range);
    const [from, to] = state === "live" ? [committed, live] : [live, committed];
    if (!areAll(reservation.units, first, end, from)) {
      throw new HoldfastError(
        "DEAD_ADDRESS",
        state === "live"
          ? `Cannot mark ${formatSpan(range)} live: some of it is already live or not committed. Mark each range once, after its commit.`
          : `Cannot mark ${formatSpan(range)} dead: some of it is not live. Mark each range dead once.`,
        { numbers: { address: range.address, size: range.size } },
      );
    }
    reservation.units.fill(to, first, end);
  }

  /** Rejects an access to a byte outside the live spans. */
  requireLive(range: Span, what: string): void {
    const reservation = this.#find(range, what);
    const [first, end] = toUnits(reservation, range);
    if (!areAll(reservation.units, first, end, live)) {
      throw new HoldfastError(
        "DEAD_ADDRESS",
        `${what} accesses ${formatSpan(range)}, and not all of it is live: its storage was freed, or its size is wrong.`,
        { numbers: { address: range.address, size: range.size } },
      );
    }
  }

  #find(range: Span, what: string): Reservation {
    const reservation = this.#reservations.find((entry) => contains(entry.range, range));
    if (reservation) return reservation;
    throw new HoldfastError(
      "DEAD_ADDRESS",
      `${what}: ${formatSpan(range)} is not reserved. Pass a range inside a span that reserve() returned.`,
      {
        numbers: { address: range.address, size: range.size },
      },
    );
  }
}

function toUnits(reservation: Reservation, range: Span): [first: number, end: number] {
  const offset = range.address - reservation.range.address;
  return [Math.floor(offset / unitBytes), Math.ceil((offset + range.size) / unitBytes)];
}

function areAll(units: Uint8Array, first: number, end: number, value: number): boolean {
  if (end > units.length) return false;
  for (let unit = first; unit < end; unit++) if (units[unit] !== value) return false;
  return true;
}
