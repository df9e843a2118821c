/**
 * Reports memory to a checking tool (compute-sanitizer) through NVTX. Each committed range is a pool in which only live
 * spans may be accessed. Without this the tool sees a whole chunk as one allocation and misses stray accesses inside
 * the arena.
 *
 * NVTX is opened only if the tool has put its path into the environment. compute-sanitizer takes only memory of
 * cuMemAlloc as a pool: it counts a registration of mapped memory as an error of the program. So a driver with a
 * checker allocates plainly.
 */

import { type Address, type Bytes, bytes, contains, KiB, type Span, span } from "../../units/index.js";
import type { Cuda } from "./calls.js";
import { memoryExtension, memoryPoolUsage, memoryReference, memoryType } from "./constants.js";
import { NativeBuffer } from "./native-buffer.js";
import { structs } from "./structs.js";

export interface MemoryChecker {
  /** A range of a reservation that has just been committed. False if the tool rejects it. */
  addPool(range: Span): boolean;
  /** The reservation is about to be released, with its pools. */
  removePools(reservation: Span): void;
  setState(range: Span, state: "live" | "dead"): void;
  close(): void;
}

/**
 * Opens the checker if a tool is attached that accepts pools: a profiler has a path in the environment too, and does
 * not. CUDA must have a context.
 */
export function openMemoryChecker(
  cuda: Cuda,
  environment: Readonly<Record<string, string | undefined>>,
): MemoryChecker | undefined {
  if (!environment["NVTX_INJECTION64_PATH"]) return undefined;
  let checker: NvtxChecker | undefined;
  try {
    checker = new NvtxChecker(cuda.nvtx);
    if (acceptsPools(cuda, checker)) return checker;
  } catch {
    // The tool works without it, but less precisely.
  }
  checker?.close();
  return undefined;
}

/** Registers a small allocation as a pool. */
function acceptsPools({ driver }: Cuda, checker: NvtxChecker): boolean {
  const out = new NativeBuffer();
  try {
    const size = bytes(64 * KiB);
    driver.cuMemAlloc_v2(out.address, size);
    const probe = span(out.u64(), size);
    const isAccepted = checker.addPool(probe);
    checker.removePools(probe);
    driver.cuMemFree_v2(probe.address);
    return isAccepted;
  } finally {
    out.free();
  }
}

interface Pool {
  readonly range: Span;
  readonly handle: number;
}

/** Offsets of a range and its batch in the block that NVTX reads. */
const offsets = { range: 0, batch: 64 } as const;

class NvtxChecker implements MemoryChecker {
  readonly #nvtx: Cuda["nvtx"];
  readonly #block = new NativeBuffer(256);
  readonly #domain: number;
  #pools: Pool[] = [];

  constructor(nvtx: Cuda["nvtx"]) {
    this.#nvtx = nvtx;
    this.#domain = nvtx.nvtxDomainCreateA("holdfast");
  }

  addPool(range: Span): boolean {
    this.#writeRange(range);
    structs.memoryPool.write(
      this.#block.view,
      {
        extCompatID: memoryExtension.COMPATID_MEM,
        structSize: structs.memoryPool.size,
        usage: memoryPoolUsage.SUB_ALLOCATOR,
        type: memoryType.VIRTUAL_ADDRESS,
        typeSpecificDescSize: structs.memoryRange.size,
        typeSpecificDesc: this.#block.address + offsets.range,
      },
      offsets.batch,
    );
    const handle = this.#nvtx.nvtxMemHeapRegister(this.#domain, this.#block.address + offsets.batch);
    // NVTX returns -1 without a tool for memory. The tool returns 0 for a rejected pool; as a handle, 0 would mean all
    // memory of the process.
    const isAccepted = Number.isSafeInteger(handle) && handle !== 0;
    if (isAccepted) this.#pools.push({ range, handle });
    return isAccepted;
  }

  removePools(reservation: Span): void {
    const isReleased = (pool: Pool): boolean => contains(reservation, pool.range);
    for (const { handle } of this.#pools.filter(isReleased)) {
      this.#nvtx.nvtxMemHeapUnregister(this.#domain, handle);
    }
    this.#pools = this.#pools.filter((pool) => !isReleased(pool));
  }

  /** Memory committed in several ranges is several allocations to the tool: no region crosses their edges. */
  setState(range: Span, state: "live" | "dead"): void {
    for (const pool of this.#pools) {
      const common = intersect(range, pool.range);
      if (common) {
        if (state === "live") this.#register(common, pool.handle);
        else this.#unregister(common);
      }
    }
  }

  close(): void {
    this.#pools = [];
    this.#nvtx.nvtxDomainDestroy(this.#domain);
    this.#block.free();
  }

  #register(range: Span, heap: number): void {
    this.#writeRange(range);
    structs.memoryRegions.write(
      this.#block.view,
      {
        extCompatID: memoryExtension.COMPATID_MEM,
        structSize: structs.memoryRegions.size,
        regionType: memoryType.VIRTUAL_ADDRESS,
        heap,
        regionCount: 1,
        regionDescElementSize: structs.memoryRange.size,
        regionDescElements: this.#block.address + offsets.range,
      },
      offsets.batch,
    );
    this.#nvtx.nvtxMemRegionsRegister(this.#domain, this.#block.address + offsets.batch);
  }

  #unregister({ address }: Span): void {
    this.#block.setU64(address, offsets.range);
    structs.memoryReferences.write(
      this.#block.view,
      {
        extCompatID: memoryExtension.COMPATID_MEM,
        structSize: structs.memoryReferences.size,
        refType: memoryReference.POINTER,
        refCount: 1,
        refElementSize: 8,
        refElements: this.#block.address + offsets.range,
      },
      offsets.batch,
    );
    this.#nvtx.nvtxMemRegionsUnregister(this.#domain, this.#block.address + offsets.batch);
  }

  #writeRange({ address: ptr, size }: Span): void {
    structs.memoryRange.write(this.#block.view, { size, ptr }, offsets.range);
  }
}

/** The intersection of two spans. */
function intersect(left: Span, right: Span): Span | undefined {
  const start = Math.max(left.address, right.address);
  const end = Math.min(left.address + left.size, right.address + right.size);
  return start < end ? { address: start as Address, size: (end - start) as Bytes } : undefined;
}
