/**
 * Device memory on the CPU: one shared WebAssembly memory, whose byte offsets are the device addresses. Ranges are
 * reserved first-fit in its address space, 4 GiB unless more is asked for; the memory grows to cover committed ranges.
 *
 * A WebAssembly memory never shrinks: a released range can be reserved again, but its pages stay with the process.
 * After a release `free` is therefore a lower bound.
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
  MiB,
  type Span,
  span,
} from "../../units/index.js";
import type { MemoryInfo } from "../driver.js";
import { loadKoffi } from "../foreign-functions.js";
import { readHostMemory } from "../host-memory.js";
import { Reservations, requireReservable } from "../reservations.js";
import { hasMemory64 } from "./has-memory64.js";
import { createMemory32, createMemory64, maximumBytes64, type WasmMemory } from "./memory64.js";
import { pageBytes } from "./wasm.js";

/** Each growth costs a protection change and a notification of every thread, so small commits share one. */
const growthPages = (16 * MiB) / pageBytes;

/** The first page is never reserved: address 0 in a span is always an error. */
const firstAddress = pageBytes;

/** What a 32-bit memory can hold. */
const maximumBytes32 = 4 * GiB - firstAddress;

export interface DeviceMemoryOptions {
  readonly maximumBytes?: number | undefined;
  readonly hostRoot?: string | undefined;
  /** True for 64-bit addresses in a memory of any size. */
  readonly isWide?: boolean | undefined;
}

export class DeviceMemory {
  readonly #wasm: WasmMemory;
  /** Maximum bytes that can be reserved and committed. */
  readonly limit: Bytes;
  readonly #hostRoot: string | undefined;
  readonly #reservations = new Reservations(pageBytes);
  #bytes: Uint8Array;

  constructor({ maximumBytes = 4 * GiB, hostRoot, isWide = false }: DeviceMemoryOptions = {}) {
    const isLarge = maximumBytes > 4 * GiB && hasMemory64();
    const limit = Math.min(maximumBytes, isLarge ? maximumBytes64 - firstAddress : maximumBytes32);
    if (!Number.isSafeInteger(maximumBytes) || limit < pageBytes || limit % pageBytes !== 0) {
      const message = `Option maximumBytes is ${maximumBytes}; pass a multiple of ${formatBytes(pageBytes)}, up to ${formatBytes(maximumBytes64)}.`;
      throw new HoldfastError("BAD_SETTING", message, { numbers: { maximumBytes } });
    }
    this.limit = bytes(limit);
    this.#hostRoot = hostRoot;
    const pages = (firstAddress + limit) / pageBytes;
    this.#wasm = ((isWide || isLarge) && createMemory64(pages)) || createMemory32(pages);
    this.#bytes = new Uint8Array(this.wasm.buffer);
  }

  get wasm(): WebAssembly.Memory {
    return this.#wasm.memory;
  }

  /** True if its addresses have 64 bits. */
  get isWide(): boolean {
    return this.#wasm.isWide;
  }

  /** All bytes of the memory. Do not keep the array: it does not cover later growth. */
  get bytes(): Uint8Array {
    return this.#bytes;
  }

  /** The native address of device address 0. A shared memory grows in place, so the address never changes. */
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

  /** Reserves the first gap that is wide enough; rounds the size up to whole pages. */
  reserve(size: Bytes): Span {
    requireReservable(size);
    const rounded = alignUp(size, pageBytes);
    let start = firstAddress;
    for (const range of this.#reservations.ranges) {
      if (range.address - start >= rounded) break;
      start = endOf(range);
    }
    if (start + rounded > firstAddress + this.limit) throw this.#noRange(rounded);
    const range = span(start, rounded);
    this.#reservations.add(range);
    return range;
  }

  commit(range: Span): void {
    this.#reservations.requireCommittable(range);
    const { free } = this.info();
    if (range.size > free) {
      const message = `Cannot commit ${formatSpan(range)}: ${formatBytes(free)} is free on this host. Use less memory, or free some elsewhere on the machine.`;
      throw new HoldfastError("OUT_OF_MEMORY", message, { numbers: { size: range.size, free } });
    }
    this.#growToCover(range);
    this.#reservations.noteCommitted(range);
  }

  release(reservation: Span): void {
    this.#reservations.remove(reservation);
  }

  /** Throws if `release` would throw. */
  requireReserved(reservation: Span): void {
    this.#reservations.requireReserved(reservation);
  }

  /** True if every byte of the range is committed. */
  holds(range: Span): boolean {
    return this.#reservations.holds(range);
  }

  #growToCover(range: Span): void {
    const pages = this.#bytes.length / pageBytes;
    const missing = Math.ceil((endOf(range) - this.#bytes.length) / pageBytes);
    if (missing <= 0) return;
    const availablePages = (firstAddress + this.limit) / pageBytes - pages;
    try {
      this.#wasm.grow(Math.min(availablePages, Math.max(missing, growthPages)));
    } catch (cause) {
      const message = `Cannot commit ${formatSpan(range)}: Node.js could not grow the WebAssembly memory by ${formatBytes(missing * pageBytes)} from ${formatBytes(this.#bytes.length)}. Use less memory, or raise the limit on this process's address space.`;
      throw new HoldfastError("OUT_OF_MEMORY", message, { numbers: { size: range.size }, cause });
    }
    this.#bytes = new Uint8Array(this.wasm.buffer);
  }

  #noRange(size: number): HoldfastError {
    const reserved = this.#reservations.ranges.reduce((total, range) => total + range.size, 0);
    const end = firstAddress + this.limit;
    const message = `Cannot reserve ${formatBytes(size)}: no gap of that size is left below ${formatAddress(end)}, and ${formatBytes(reserved)} of ${formatBytes(this.limit)} is reserved. Release a reservation, ask for less, or set HOLDFAST_MEMORY: up to ${formatBytes(maximumBytes64)} with Node.js 24 or later.`;
    return new HoldfastError("OUT_OF_MEMORY", message, { numbers: { size, reserved, limit: this.limit } });
  }
}
