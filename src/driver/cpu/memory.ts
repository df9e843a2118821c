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
import { Reservations, requireReservable } from "../reservations.js";

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

export class DeviceMemory {
  readonly wasm: WebAssembly.Memory;
  /** How much can be reserved, and committed, in all. */
  readonly limit: Bytes;
  readonly #hostRoot: string | undefined;
  readonly #reservations = new Reservations(pageBytes);
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
    return this.#reservations.committedBytes;
  }

  /** Takes the first gap that is wide enough; the size is rounded up to whole pages. */
  reserve(size: Bytes): Span {
    requireReservable(size);
    const wanted = alignUp(size, pageBytes);
    let start = firstAddress;
    for (const range of this.#reservations.ranges) {
      if (range.address - start >= wanted) break;
      start = endOf(range);
    }
    if (start + wanted > firstAddress + this.limit) throw this.#noRange(wanted);
    const range = span(start, wanted);
    this.#reservations.add(range);
    return range;
  }

  commit(part: Span): void {
    this.#reservations.requireCommittable(part);
    const { free } = this.info();
    if (part.size > free) {
      const message = `Commit of ${formatSpan(part)}: ${formatBytes(free)} is free on this host. Hold less, or free memory elsewhere on the machine.`;
      throw new HoldfastError("OUT_OF_MEMORY", message, { numbers: { size: part.size, free } });
    }
    this.#growToCover(part);
    this.#reservations.noteCommitted(part);
  }

  release(reservation: Span): void {
    this.#reservations.remove(reservation);
  }

  /** Throws what `release` would throw. */
  requireReserved(reservation: Span): void {
    this.#reservations.requireReserved(reservation);
  }

  /** Is there memory behind every byte of the range? */
  holds(range: Span): boolean {
    return this.#reservations.holds(range);
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
    const reserved = this.#reservations.ranges.reduce((total, range) => total + range.size, 0);
    const end = firstAddress + this.limit;
    const message = `No gap of ${formatBytes(wanted)} is left below ${formatAddress(end)}: ${formatBytes(reserved)} of ${formatBytes(this.limit)} is reserved. Release a reservation, or ask for less.`;
    return new HoldfastError("OUT_OF_MEMORY", message, { numbers: { wanted, reserved, limit: this.limit } });
  }
}
