/**
 * What a tool that checks memory (compute-sanitizer) is told of ours, through NVTX: each committed part is a pool in which
 * nothing may be touched but the spans in use. Without it the tool takes a whole chunk for one allocation, and a kernel
 * that strays inside the arena goes unseen.
 *
 * No tool, no library, no calls: NVTX is opened only where the tool has put its own path into the environment.
 */

import { type Address, type Bytes, contains, type Span } from "../../units/index.js";
import type { Cuda } from "./calls.js";
import { memoryExtension, memoryPoolUsage, memoryReference, memoryType } from "./constants.js";
import { OutBlock } from "./out-block.js";
import { structs } from "./structs.js";

export interface MemoryChecker {
  /** A part of a reservation that has memory behind it from now on. */
  addPool(part: Span): void;
  /** The reservation is about to go, and its pools with it. */
  removePools(reservation: Span): void;
  mark(range: Span, state: "live" | "dead"): void;
  close(): void;
}

/** The checker, where a tool listens that NVTX can reach; CUDA must have a context by then. */
export function openMemoryChecker(
  cuda: Cuda,
  environment: Readonly<Record<string, string | undefined>>,
): MemoryChecker | undefined {
  if (!environment["NVTX_INJECTION64_PATH"]) return undefined;
  try {
    return new NvtxChecker(cuda.nvtx);
  } catch {
    // The tool works without, only less sharply.
    return undefined;
  }
}

interface Pool {
  readonly part: Span;
  readonly handle: number;
}

/** Where a range and the batch that names it lie in the block that NVTX reads. */
const places = { range: 0, batch: 64 } as const;

class NvtxChecker implements MemoryChecker {
  readonly #nvtx: Cuda["nvtx"];
  readonly #block = new OutBlock(256);
  readonly #domain: number;
  #pools: Pool[] = [];

  constructor(nvtx: Cuda["nvtx"]) {
    this.#nvtx = nvtx;
    this.#domain = nvtx.nvtxDomainCreateA("holdfast");
  }

  addPool(part: Span): void {
    this.#writeRange(part);
    structs.memoryPool.write(
      this.#block.view,
      {
        extCompatID: memoryExtension.COMPATID_MEM,
        structSize: structs.memoryPool.size,
        usage: memoryPoolUsage.SUB_ALLOCATOR,
        type: memoryType.VIRTUAL_ADDRESS,
        typeSpecificDescSize: structs.memoryRange.size,
        typeSpecificDesc: this.#block.address + places.range,
      },
      places.batch,
    );
    const handle = this.#nvtx.nvtxMemHeapRegister(this.#domain, this.#block.address + places.batch);
    // NVTX's answer where the tool has no ear for memory is -1.
    if (Number.isSafeInteger(handle)) this.#pools.push({ part, handle });
  }

  removePools(reservation: Span): void {
    const isGone = ({ part }: Pool): boolean => contains(reservation, part);
    for (const { handle } of this.#pools.filter(isGone)) {
      this.#nvtx.nvtxMemHeapUnregister(this.#domain, handle);
    }
    this.#pools = this.#pools.filter((pool) => !isGone(pool));
  }

  /** Memory that was committed in several parts is several allocations to the tool: no region reaches over their edges. */
  mark(range: Span, state: "live" | "dead"): void {
    for (const { part, handle } of this.#pools) {
      const common = intersect(range, part);
      if (common) {
        if (state === "live") this.#register(common, handle);
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
        regionDescElements: this.#block.address + places.range,
      },
      places.batch,
    );
    this.#nvtx.nvtxMemRegionsRegister(this.#domain, this.#block.address + places.batch);
  }

  #unregister({ address }: Span): void {
    this.#block.setU64(address, places.range);
    structs.memoryReferences.write(
      this.#block.view,
      {
        extCompatID: memoryExtension.COMPATID_MEM,
        structSize: structs.memoryReferences.size,
        refType: memoryReference.POINTER,
        refCount: 1,
        refElementSize: 8,
        refElements: this.#block.address + places.range,
      },
      places.batch,
    );
    this.#nvtx.nvtxMemRegionsUnregister(this.#domain, this.#block.address + places.batch);
  }

  #writeRange({ address: ptr, size }: Span): void {
    structs.memoryRange.write(this.#block.view, { size, ptr }, places.range);
  }
}

/** What two spans share. */
function intersect(one: Span, other: Span): Span | undefined {
  const start = Math.max(one.address, other.address);
  const end = Math.min(one.address + one.size, other.address + other.size);
  return start < end ? { address: start as Address, size: (end - start) as Bytes } : undefined;
}
