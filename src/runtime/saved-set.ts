/** What one backward pass still needs: storages pinned together while it is owed, and let go together after it. */

import type { Arena } from "./arena.js";
import { runAll } from "./run-all.js";
import type { Storage } from "./storage.js";

/** Pins what a backward pass needs, and lets go of all of it at once. */
export class SavedSet {
  readonly #arena: Arena;
  readonly #by: string;
  #saved: Storage[] = [];

  constructor(arena: Arena, by: string) {
    this.#arena = arena;
    this.#by = by;
  }

  get size(): number {
    return this.#saved.length;
  }

  /** Persistent memory needs no pin: it never dies by a step. */
  save(storage: Storage): void {
    if (storage.kind === "persistent") return;
    this.#arena.pin(storage, this.#by);
    this.#saved.push(storage);
  }

  /** Lets go of everything; harmless when repeated. */
  release(): void {
    const saved = this.#saved;
    this.#saved = [];
    runAll(saved.map((storage) => () => this.#arena.unpin(storage)));
  }
}
