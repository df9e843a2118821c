/**
 * Reports memory to a checking tool (compute-sanitizer) through NVTX. Each committed range is a pool in which only live
 * spans may be accessed. Without this the tool sees a whole chunk as one allocation and misses stray accesses inside
 * the arena.
 *
 * NVTX is opened only if the tool has put its path into the environment.
 */

import { type Address, type Bytes, contains, type Span } from "../../units/index.js";
import type { Cuda } from "./calls.js";
import { memoryExtension, memoryPoolUsage, memoryReference, memoryType } from "./constants.js";
import { NativeBuffer } from "./native-buffer.js";
import { structs } from "./structs.js";

export interface MemoryChecker {
  /** A range of a reservation that has just been committed. */
  addPool(range: Span): void;
  /** The reservation is about to be released, with its pools. */
  removePools(reservation: Span): void;
  setState(range: Span, state: "live" | "dead"): void;
  close(): void;
}

/** Opens the checker if a tool is attached that NVTX can reach. CUDA must have a context. */
export function openMemoryChecker(
  cuda: Cuda,
  environment: Readonly<Record<string, string | undefined>>,
): MemoryChecker | undefined {
  if (!environment["NVTX_INJECTION64_PATH"]) return undefined;
  try {
    return new NvtxChecker(cuda.nvtx);
  } catch {
    // The tool works without it, but less precisely.
    return undefined;
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

  addPool(range: Span): void {
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
    // NVTX returns -1 if the tool does not support memory reports.
    if (Number.isSafeInteger(handle)) this.#pools.push({ range, handle });
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
