/**
 * Device memory on the CPU: one shared WebAssembly memory, whose byte offsets are the device addresses. Ranges are
 * reserved first-fit in its 4 GiB of address space, and the memory grows to cover what is committed.
 *
 * A WebAssembly memory never shrinks: what `release` gives back can be reserved anew, but its pages stay with this
 * process until it ends. `free` therefore errs on the careful side after a release.
 */

import { HoldfastError } from "../../errors/index.js";
import {
  alignUp,
  type Bytes,
  bytes,
  contains,
  endOf,
  formatAddress,
  formatBytes,
  formatSpan,
  GiB,
  KiB,
  MiB,
  type Span,
  span,
} from "../../units/index.js";
import type { MemoryInfo } from "../driver.js";
import { loadKoffi } from "../foreign-functions.js";
import { readHostMemory } from "../host-memory.js";
import { RangeSet } from "./range-set.js";

/** A WebAssembly page, and the unit of reserving and committing. */
export const pageBytes = 64 * KiB;

/** Each growth costs a protection change and news to every thread, so small commits share one. */
const growthPages = (16 * MiB) / pageBytes;

/** The first page is never handed out: address 0 in a span is always a mistake. */
const firstAddress = pageBytes;

export interface DeviceMemoryOptions {
  readonly maximumBytes?: number | undefined;
  readonly hostRoot?: string | undefined;
}

interface Reservation {
  readonly range: Span;
  readonly committed: RangeSet;
}

export class DeviceMemory {
  readonly wasm: WebAssembly.Memory;
  /** How much can be reserved, and committed, in all. */
  readonly limit: Bytes;
  readonly #hostRoot: string | undefined;
  /** In the order of their addresses. */
  readonly #reservations: Reservation[] = [];
  #bytes: Uint8Array;

  constructor({ maximumBytes = 4 * GiB, hostRoot }: DeviceMemoryOptions = {}) {
    const limit = Math.min(maximumBytes, 4 * GiB - firstAddress);
    if (!Number.isSafeInteger(maximumBytes) || limit < pageBytes || limit % pageBytes !== 0) {
      const message = `maximumBytes is ${maximumBytes}; give a multiple of ${formatBytes(pageBytes)}, up to 4 GiB.`;
      throw new HoldfastError("BAD_SETTING", message, { numbers: { maximumBytes } });
    }
    this.limit = bytes(limit);
    this.#hostRoot = hostRoot;
    this.wasm = new WebAssembly.Memory({
      initial: 1,
      maximum: (firstAddress + limit) / pageBytes,
      shared: true,
    });
    this.#bytes = new Uint8Array(this.wasm.buffer);
  }

  /** Every byte that the memory has grown to. Don't keep it: growing leaves an old array short. */
  get bytes(): Uint8Array {
    return this.#bytes;
  }

  /** Where device address 0 lies in this process. A shared memory grows in place, so it is the same for life. */
  nativeAddress(): number {
    return Number(loadKoffi().address(this.#bytes));
  }

  info(): MemoryInfo {
    const host = readHostMemory(this.#hostRoot);
    const total = Math.min(this.limit, host.total, host.cgroupLimit ?? Number.POSITIVE_INFINITY);
    return {
      total: bytes(total),
      free: bytes(Math.max(0, Math.min(total - this.committedBytes, host.available))),
    };
  }

  get committedBytes(): number {
    return this.#reservations.reduce((total, { committed }) => total + committed.totalBytes, 0);
  }

  /** Takes the first gap that is wide enough; the size is rounded up to whole pages. */
  reserve(size: Bytes): Span {
    const wanted = alignUp(size, pageBytes);
    if (!Number.isSafeInteger(size) || wanted <= 0) {
      const message = `A reservation of ${size} bytes was asked; ask for a whole number of bytes, 1 or more.`;
      throw new HoldfastError("BAD_SIZE", message, { numbers: { size } });
    }
    let start = firstAddress;
    let place = 0;
    for (const { range } of this.#reservations) {
      if (range.address - start >= wanted) break;
      start = endOf(range);
      place++;
    }
    if (start + wanted > firstAddress + this.limit) throw this.#noRange(wanted);
    const range = span(start, wanted);
    this.#reservations.splice(place, 0, { range, committed: new RangeSet() });
    return range;
  }

  commit(part: Span): void {
    const owner = this.#reservations.find(({ range }) => contains(range, part));
    if (!owner) {
      const message = `Commit of ${formatSpan(part)}: it lies in none of the ${this.#reservations.length} reservations. Commit inside the span that reserve() returned.`;
      throw new HoldfastError("NOT_OWNER", message, { numbers: { address: part.address, size: part.size } });
    }
    if (part.address % pageBytes !== 0 || part.size % pageBytes !== 0 || part.size === 0) {
      const message = `Commit of ${formatSpan(part)}: address and size must be multiples of the granularity, ${formatBytes(pageBytes)}, and the size not 0.`;
      throw new HoldfastError("BAD_ARGUMENT", message, {
        numbers: { address: part.address, size: part.size },
      });
    }
    const taken = owner.committed.firstOverlap(part);
    if (taken) {
      const message = `Commit of ${formatSpan(part)}: ${formatSpan(taken)} is committed already. Commit each part once.`;
      throw new HoldfastError("BAD_ARGUMENT", message, {
        numbers: { address: part.address, size: part.size },
      });
    }
    const { free } = this.info();
    if (part.size > free) {
      const message = `Commit of ${formatSpan(part)}: ${formatBytes(free)} is free on this host. Hold less, or free memory elsewhere on the machine.`;
      throw new HoldfastError("OUT_OF_MEMORY", message, { numbers: { size: part.size, free } });
    }
    this.#growToCover(part);
    owner.committed.add(part);
  }

  release(reservation: Span): void {
    this.#reservations.splice(this.#indexOf(reservation), 1);
  }

  /** Throws what `release` would throw. */
  requireReserved(reservation: Span): void {
    this.#indexOf(reservation);
  }

  /** Is there memory behind every byte of the range? */
  holds(range: Span): boolean {
    if (range.size === 0) return true;
    for (const { range: reserved, committed } of this.#reservations) {
      if (contains(reserved, range)) return committed.covers(range);
    }
    return false;
  }

  #indexOf({ address, size }: Span): number {
    const index = this.#reservations.findIndex(
      ({ range }) => range.address === address && range.size === size,
    );
    if (index < 0) {
      const message = `Release of ${formatSpan({ address, size })}: no such reservation. It was released before, or is not the whole span that reserve() returned.`;
      throw new HoldfastError("NOT_OWNER", message, { numbers: { address, size } });
    }
    return index;
  }

  #growToCover(part: Span): void {
    const pages = this.#bytes.length / pageBytes;
    const missing = Math.ceil((endOf(part) - this.#bytes.length) / pageBytes);
    if (missing <= 0) return;
    const room = (firstAddress + this.limit) / pageBytes - pages;
    try {
      this.wasm.grow(Math.min(room, Math.max(missing, growthPages)));
    } catch (cause) {
      const message = `Commit of ${formatSpan(part)}: Node.js could not grow the WebAssembly memory by ${formatBytes(missing * pageBytes)} from ${formatBytes(this.#bytes.length)}. Hold less, or lift the limit on this process's address space.`;
      throw new HoldfastError("OUT_OF_MEMORY", message, { numbers: { size: part.size }, cause });
    }
    this.#bytes = new Uint8Array(this.wasm.buffer);
  }

  #noRange(wanted: number): HoldfastError {
    const reserved = this.#reservations.reduce((total, { range }) => total + range.size, 0);
    const end = firstAddress + this.limit;
    const message = `No gap of ${formatBytes(wanted)} is left below ${formatAddress(end)}: ${formatBytes(reserved)} of ${formatBytes(this.limit)} is reserved. Release a reservation, or ask for less.`;
    return new HoldfastError("OUT_OF_MEMORY", message, { numbers: { wanted, reserved, limit: this.limit } });
  }
}
