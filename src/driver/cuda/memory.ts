/**
 * Device memory of a GPU: address ranges with memory mapped in (the virtual memory API), or whole allocations if a
 * probe of that API fails. Never managed memory.
 */

import { alignUp, type Bytes, bytes, KiB, runAll, type Span, span } from "../../units/index.js";
import { Reservations, requireReservable } from "../reservations.js";
import type { Cuda } from "./calls.js";
import {
  deviceAttribute,
  memoryAccess,
  memoryAllocationType,
  memoryGranularity,
  memoryLocationType,
} from "./constants.js";
import { NativeBuffer } from "./native-buffer.js";
import { structs } from "./structs.js";

export interface CudaMemory {
  readonly granularity: Bytes;
  readonly canCommitInParts: boolean;
  readonly reservations: Reservations;
  reserve(size: Bytes): Span;
  commit(range: Span): void;
  /** The caller guarantees that nothing uses the memory any more. */
  release(reservation: Span): void;
  close(): void;
}

/** Uses the virtual memory API if it works on this device and the caller allows it, else plain allocations. */
export function openMemory(cuda: Cuda, device: number, allocation: "auto" | "plain" = "auto"): CudaMemory {
  if (allocation === "plain") return new PlainMemory(cuda);
  if (!reportsVirtualMemory(cuda, device)) return new PlainMemory(cuda);
  let memory: VirtualMemory | undefined;
  try {
    memory = new VirtualMemory(cuda, device);
    const probe = memory.reserve(memory.granularity);
    memory.commit(probe);
    memory.release(probe);
    return memory;
  } catch {
    // Some systems report support and then reject the first mapping, so the probe decides.
    memory?.close();
    return new PlainMemory(cuda);
  }
}

function reportsVirtualMemory({ driver }: Cuda, device: number): boolean {
  const out = new NativeBuffer();
  try {
    driver.cuDeviceGetAttribute(out.address, deviceAttribute.VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, device);
    return out.i32() !== 0;
  } finally {
    out.free();
  }
}

/** Physical memory mapped into a range. */
interface Mapping {
  readonly range: Span;
  readonly handle: number;
  isMapped: boolean;
}

class VirtualMemory implements CudaMemory {
  readonly granularity: Bytes;
  readonly canCommitInParts = true;
  readonly reservations: Reservations;
  readonly #cuda: Cuda;
  readonly #out = new NativeBuffer();
  /** Allocation property and access of this device: constant, so written once. */
  readonly #property = new NativeBuffer();
  readonly #access = new NativeBuffer();
  readonly #mappings = new Map<number, Mapping[]>();

  constructor(cuda: Cuda, device: number) {
    this.#cuda = cuda;
    structs.allocationProperty.write(this.#property.view, {
      type: memoryAllocationType.PINNED,
      locationType: memoryLocationType.DEVICE,
      locationId: device,
    });
    structs.access.write(this.#access.view, {
      locationType: memoryLocationType.DEVICE,
      locationId: device,
      flags: memoryAccess.READWRITE,
    });
    cuda.driver.cuMemGetAllocationGranularity(
      this.#out.address,
      this.#property.address,
      memoryGranularity.MINIMUM,
    );
    this.granularity = bytes(this.#out.u64());
    this.reservations = new Reservations(this.granularity);
  }

  reserve(size: Bytes): Span {
    requireReservable(size);
    const whole = alignUp(size, this.granularity);
    this.#cuda.driver.cuMemAddressReserve(this.#out.address, whole, 0, 0, 0);
    const range = span(this.#out.u64(), whole);
    this.reservations.add(range);
    this.#mappings.set(range.address, []);
    return range;
  }

  commit(range: Span): void {
    this.reservations.requireCommittable(range);
    const { cuMemCreate, cuMemMap, cuMemSetAccess, cuMemUnmap, cuMemRelease } = this.#cuda.driver;
    cuMemCreate(this.#out.address, range.size, this.#property.address, 0);
    const handle = this.#out.u64();
    let isMapped = false;
    try {
      cuMemMap(range.address, range.size, 0, handle, 0);
      isMapped = true;
      cuMemSetAccess(range.address, range.size, this.#access.address, 1);
    } catch (error) {
      if (isMapped) cuMemUnmap(range.address, range.size);
      cuMemRelease(handle);
      throw error;
    }
    this.reservations.noteCommitted(range);
    const owner = this.reservations.ranges.find(
      ({ address, size }) => range.address - address < size && range.address >= address,
    );
    if (owner) this.#mappings.get(owner.address)?.push({ range, handle, isMapped });
  }

  /** If CUDA fails halfway, the memory is lost; the next attempt continues from there. */
  release(reservation: Span): void {
    this.reservations.requireReserved(reservation);
    const { cuMemUnmap, cuMemRelease, cuMemAddressFree } = this.#cuda.driver;
    const mappings = this.#mappings.get(reservation.address) ?? [];
    for (let last = mappings.at(-1); last; last = mappings.at(-1)) {
      if (last.isMapped) cuMemUnmap(last.range.address, last.range.size);
      last.isMapped = false;
      this.reservations.noteEmptied(reservation);
      cuMemRelease(last.handle);
      mappings.pop();
    }
    cuMemAddressFree(reservation.address, reservation.size);
    this.#mappings.delete(reservation.address);
    this.reservations.remove(reservation);
  }

  close(): void {
    for (const block of [this.#out, this.#property, this.#access]) block.free();
    releaseAll(this);
  }
}

class PlainMemory implements CudaMemory {
  /** An allocation is aligned to at least 256 bytes, so this only keeps sizes round. */
  readonly granularity = bytes(64 * KiB);
  readonly canCommitInParts = false;
  readonly reservations = new Reservations(256);
  readonly #cuda: Cuda;
  readonly #out = new NativeBuffer();

  constructor(cuda: Cuda) {
    this.#cuda = cuda;
  }

  /** Here an address range always comes with its memory. */
  reserve(size: Bytes): Span {
    requireReservable(size);
    const whole = alignUp(size, this.granularity);
    this.#cuda.driver.cuMemAlloc_v2(this.#out.address, whole);
    const range = span(this.#out.u64(), whole);
    this.reservations.add(range);
    return range;
  }

  commit(range: Span): void {
    this.reservations.requireCommittable(range);
    this.reservations.noteCommitted(range);
  }

  release(reservation: Span): void {
    this.reservations.requireReserved(reservation);
    this.#cuda.driver.cuMemFree_v2(reservation.address);
    this.reservations.remove(reservation);
  }

  close(): void {
    this.#out.free();
    releaseAll(this);
  }
}

/** A range that CUDA fails to release must not keep the others. */
function releaseAll(memory: CudaMemory): void {
  runAll(memory.reservations.ranges.map((range) => () => memory.release(range)));
}
