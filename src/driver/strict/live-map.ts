/** Which device bytes are reserved, committed and in use, in units of 256 bytes. */

import { HoldfastError } from "../../errors/index.js";
import { contains, formatSpan, type Span } from "../../units/index.js";

const unitBytes = 256;

const committed = 1;
const live = 2;

interface Reservation {
  readonly range: Span;
  /** One byte a unit: 0 reserved, `committed` or `live`; grown to the highest committed unit. */
  units: Uint8Array;
}

export class LiveMap {
  readonly #reservations: Reservation[] = [];

  reserve(range: Span): void {
    this.#reservations.push({ range, units: new Uint8Array(0) });
  }

  release(range: Span): void {
    const index = this.#reservations.findIndex((one) => one.range.address === range.address);
    if (index >= 0) this.#reservations.splice(index, 1);
  }

  commit(part: Span): void {
    const reservation = this.#find(part, "commit");
    const [first, end] = unitsOf(reservation, part);
    if (end > reservation.units.length) {
      const grown = new Uint8Array(Math.max(end, 2 * reservation.units.length));
      grown.set(reservation.units);
      reservation.units = grown;
    }
    reservation.units.fill(committed, first, end);
  }

  annotate(range: Span, state: "live" | "dead"): void {
    const reservation = this.#find(range, `annotate ${state}`);
    const [first, end] = unitsOf(reservation, range);
    const [from, to] = state === "live" ? [committed, live] : [live, committed];
    if (!areAll(reservation.units, first, end, from)) {
      throw new HoldfastError(
        "DEAD_ADDRESS",
        state === "live"
          ? `${formatSpan(range)} was to come into use, but a part of it is in use already or has no memory behind it.`
          : `${formatSpan(range)} was to go out of use, but a part of it is not in use.`,
        { numbers: { address: range.address, size: range.size } },
      );
    }
    reservation.units.fill(to, first, end);
  }

  /** Rejects a call that touches a byte outside the spans in use. */
  requireLive(range: Span, what: string): void {
    const reservation = this.#find(range, what);
    const [first, end] = unitsOf(reservation, range);
    if (!areAll(reservation.units, first, end, live)) {
      throw new HoldfastError(
        "DEAD_ADDRESS",
        `${what} touches ${formatSpan(range)}, and not all of it is in use: its storage has died, or its size is wrong.`,
        { numbers: { address: range.address, size: range.size } },
      );
    }
  }

  #find(range: Span, what: string): Reservation {
    const reservation = this.#reservations.find((one) => contains(one.range, range));
    if (reservation) return reservation;
    throw new HoldfastError("DEAD_ADDRESS", `${what}: ${formatSpan(range)} lies in no reserved range.`, {
      numbers: { address: range.address, size: range.size },
    });
  }
}

function unitsOf(reservation: Reservation, range: Span): [first: number, end: number] {
  const offset = range.address - reservation.range.address;
  return [Math.floor(offset / unitBytes), Math.ceil((offset + range.size) / unitBytes)];
}

function areAll(units: Uint8Array, first: number, end: number, value: number): boolean {
  if (end > units.length) return false;
  for (let unit = first; unit < end; unit++) if (units[unit] !== value) return false;
  return true;
}
