/** The storages that one backward pass needs: pinned together until it has run, then released together. */

import { runAll } from "../../units/index.js";
import type { Arena } from "./arena.js";
import type { Storage } from "./storage.js";

/**
 * Pins the storages that a backward pass needs, and releases them all at once.
 *
 * @example
 * ```ts
 * import { openRuntime, SavedSet } from "holdfast/internals";
 * const runtime = openRuntime({ memory: "64MiB", print: () => {} });
 * const saved = new SavedSet(runtime.arena, "backward");
 * const x = runtime.step(() => {
 *   const input = runtime.arena.allocate(8, "input");
 *   saved.save(input);
 *   return input;
 * });
 * console.log(runtime.arena.isLive(x), saved.size); // → true 1
 * saved.release();
 * runtime.close();
 * ```
 */
export class SavedSet {
  readonly #arena: Arena;
  readonly #by: string;
  #saved: Storage[] = [];

  constructor(arena: Arena, by: string) {
    this.#arena = arena;
    this.#by = by;
  }

  /** Number of pinned storages. */
  get size(): number {
    return this.#saved.length;
  }

  /** Pins a storage until `release()`. Persistent memory needs no pin: no step ends it. */
  save(storage: Storage): void {
    if (storage.kind === "persistent") return;
    this.#arena.pin(storage, this.#by);
    this.#saved.push(storage);
  }

  /** Unpins everything. Idempotent. */
  release(): void {
    const saved = this.#saved;
    this.#saved = [];
    runAll(saved.map((storage) => () => this.#arena.unpin(storage)));
  }
}
