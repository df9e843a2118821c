/** The arena's live blocks, and their sums for reports. */

import type { Bytes, Span } from "../../units/index.js";
import type { Storage } from "./storage.js";

export interface StepStorage extends Storage {
  readonly kind: "step";
  /** The step that allocated it; 0 outside any step. */
  readonly step: number;
  /** The allocation's serial number: distinguishes a storage from its copies and from a later one in the same slot. */
  readonly serial: number;
  /** Index of its block in the arena. */
  readonly slot: number;
}

export interface Block {
  readonly storage: StepStorage;
  /** The bytes that it occupies, including alignment. */
  readonly extent: Span;
  /** The live views; most storages have none. */
  views: Set<Storage> | undefined;
  /** The pins of the storage and its views; most have none. */
  pins: Pins | undefined;
  /** True after a reset: only its pins keep it alive. */
  isExpired: boolean;
}

export interface Pin {
  readonly storage: Storage;
  readonly by: string;
}

/** Pins by storage: a compiled step pins thousands of views of one storage. */
export class Pins {
  readonly #names = new Map<Storage, string[]>();
  #count = 0;

  get count(): number {
    return this.#count;
  }

  has(storage: Storage): boolean {
    return this.#names.has(storage);
  }

  /** The holders of a storage's pins; of all pins by default. */
  listHolders(storage?: Storage): readonly string[] {
    return storage ? (this.#names.get(storage) ?? []) : [...this.#names.values()].flat();
  }

  add(storage: Storage, by: string): void {
    const names = this.#names.get(storage);
    if (names) names.push(by);
    else this.#names.set(storage, [by]);
    this.#count += 1;
  }

  /** Removes the latest pin of a storage. */
  remove(storage: Storage): void {
    const names = this.#names.get(storage);
    if (!names) return;
    names.pop();
    if (names.length === 0) this.#names.delete(storage);
    this.#count -= 1;
  }
}

export interface Holder {
  readonly label: string;
  readonly count: number;
  readonly size: number;
}

/** Keeps a pinned block across a reset; its unpinned views end. */
export function keepPinned(block: Block): void {
  block.isExpired = true;
  for (const view of block.views ?? []) endView(block, view);
}

/** Ends a view whose step has ended, unless it is pinned. */
export function endView(block: Block, view: Storage): void {
  if (!block.pins?.has(view)) block.views?.delete(view);
}

/** Bytes by allocating op, largest first. */
export function listHolders(blocks: Iterable<Block>, maxHolders: number): Holder[] {
  const byLabel = new Map<string, Holder>();
  for (const { storage, extent } of blocks) {
    const { label } = storage;
    const { count, size } = byLabel.get(label) ?? { count: 0, size: 0 };
    byLabel.set(label, { label, count: count + 1, size: size + extent.size });
  }
  return [...byLabel.values()].sort((a, b) => b.size - a.size).slice(0, maxHolders);
}

/** Live bytes by the reason that keeps them alive: a pin, the open step, or a missing reset. */
export function sumByReason(
  blocks: Iterable<Block>,
  openStep: number,
): Record<"pinned" | "allocatedThisStep" | "leftOver", Bytes> {
  const sums = { pinned: 0, allocatedThisStep: 0, leftOver: 0 };
  for (const { storage, extent, pins } of blocks) {
    const isThisStep = openStep > 0 && storage.step === openStep;
    sums[(pins?.count ?? 0) > 0 ? "pinned" : isThisStep ? "allocatedThisStep" : "leftOver"] += extent.size;
  }
  return sums as Record<keyof typeof sums, Bytes>;
}
