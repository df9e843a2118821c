/**
 * Memory allocation with two implementations of one interface: the runtime's arena, and the old engine's
 * pool, which accepted every address. The regression tests on frees run on both: the first must pass, the
 * second must be caught.
 */

import assert from "node:assert/strict";
import type { Runtime, Span, Storage } from "holdfast/internals";

export interface Pool {
  allocate(size: number): Storage;
  free(storage: Storage): void;
  /** Closes the pool. */
  reset(): void;
  /** Figures that a rejected call must not change. */
  figures(): Readonly<Record<string, number>>;
}

export type OpenPool = (runtime: Runtime) => Pool;

export const arenaPool: OpenPool = (runtime) => ({
  allocate: (size) => runtime.arena.allocate(size, "block"),
  free: (storage) => runtime.arena.free(storage),
  reset: () => runtime.arena.reset(),
  figures: () => ({ ...runtime.arena.figures, budget: runtime.budget.used }),
});

const unit = 256;
const groundBytes = 1024 * 1024;

/** A bump pointer and a list of freed addresses; no generations, no owners, no checks. */
export const oldPool: OpenPool = (runtime) => {
  const region = runtime.persistent.place("library workspace", "old pool", [
    { name: "ground", size: groundBytes },
  ]);
  const ground = region.storages[0]!;
  const freed: { readonly offset: number; readonly size: number }[] = [];
  let top = 0;

  const blockAt = (offset: number, size: number): Storage => ({
    ...ground,
    span: { address: ground.span.address + offset, size } as Span,
    label: "block",
    owner: ground,
  });
  return {
    allocate(size) {
      const extent = Math.ceil(size / unit) * unit;
      const again = extent > 0 ? freed.findIndex((block) => block.size >= extent) : -1;
      if (again >= 0) return blockAt(freed.splice(again, 1)[0]!.offset, size);
      // An empty request was treated as a rewind, and a negative one was one.
      const offset = size === 0 ? 0 : top;
      top = offset + extent;
      return blockAt(offset, size);
    },
    free({ span }) {
      freed.push({
        offset: span.address - ground.span.address,
        size: Math.ceil(span.size / unit) * unit,
      });
    },
    reset() {
      top = 0;
      freed.length = 0;
    },
    figures: () => ({ top, freed: freed.length }),
  };
};

/** Fills each block with its own byte, then checks whether one has overwritten another. */
export function requireDisjointMembers(runtime: Runtime, blocks: Readonly<Record<string, Storage>>): void {
  const entries = Object.entries(blocks);
  for (const [index, [, block]] of entries.entries()) runtime.fill(block, index + 1);
  for (const [index, [name, block]] of entries.entries()) {
    const other = runtime.read(block).find((byte) => byte !== index + 1);
    assert.equal(other, undefined, `${name} shares memory with ${entries[(other ?? 0) - 1]?.[0]}`);
  }
}
