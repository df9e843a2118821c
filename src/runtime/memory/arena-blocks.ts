/** What the arena knows of its live blocks, and the sums that reports make of them. */

import type { Bytes, Span } from "../../units/index.js";
import type { Storage } from "./storage.js";

export interface StepStorage extends Storage {
  readonly kind: "step";
  /** The step it was made in; 0 outside any step. */
  readonly step: number;
  /** Counts the arena's allocations: tells a storage from a copy of it, and from a later one in its place. */
  readonly serial: number;
  /** Its block in the arena. */
  readonly slot: number;
}

export interface Block {
  readonly storage: StepStorage;
  /** The bytes it takes, alignment included. */
  readonly extent: Span;
  /** The views that are alive; most storages have none. */
  views: Set<Storage> | undefined;
  /** Who pinned the storage or a view of it; most have no pins. */
  pins: Pins | undefined;
  /** A reset passed over it: only its pins keep it. */
  isDue: boolean;
}

export interface Pin {
  readonly storage: Storage;
  readonly by: string;
}

/** Pins by what they are of: a compiled step pins thousands of views of one storage. */
export class Pins {
  readonly #names = new Map<Storage, string[]>();
  #count = 0;

  get count(): number {
    return this.#count;
  }

  has(storage: Storage): boolean {
    return this.#names.has(storage);
  }

  /** Who has pinned a storage; all of them where none is given. */
  namesOf(storage?: Storage): readonly string[] {
    return storage ? (this.#names.get(storage) ?? []) : [...this.#names.values()].flat();
  }

  add(storage: Storage, by: string): void {
    const names = this.#names.get(storage);
    if (names) names.push(by);
    else this.#names.set(storage, [by]);
    this.#count += 1;
  }

  /** Takes the latest pin of a storage back. */
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

/** A pin keeps the block over a reset; of its views only the pinned ones go on. */
export function outlive(block: Block): void {
  block.isDue = true;
  for (const view of block.views ?? []) endView(block, view);
}

/** Ends a view made in a step that is over, unless a pin keeps it. */
export function endView(block: Block, view: Storage): void {
  if (!block.pins?.has(view)) block.views?.delete(view);
}

/** Bytes by the op that made them, largest first. */
export function holdersOf(blocks: Iterable<Block>, count: number): Holder[] {
  const byLabel = new Map<string, Holder>();
  for (const { storage, extent } of blocks) {
    const { label } = storage;
    const so = byLabel.get(label);
    byLabel.set(label, { label, count: (so?.count ?? 0) + 1, size: (so?.size ?? 0) + extent.size });
  }
  return [...byLabel.values()].sort((a, b) => b.size - a.size).slice(0, count);
}

/** Bytes by what keeps them: a pin, the open step, or nothing but the missing reset. */
export function keptBy(
  blocks: Iterable<Block>,
  openStep: number,
): Record<"pinned" | "madeThisStep" | "leftOver", Bytes> {
  const kept = { pinned: 0, madeThisStep: 0, leftOver: 0 };
  for (const { storage, extent, pins } of blocks) {
    const isOfStep = openStep > 0 && storage.step === openStep;
    kept[(pins?.count ?? 0) > 0 ? "pinned" : isOfStep ? "madeThisStep" : "leftOver"] += extent.size;
  }
  return kept as Record<keyof typeof kept, Bytes>;
}
