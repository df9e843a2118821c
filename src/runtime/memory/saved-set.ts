/** What one backward pass still needs: storages pinned together while it is owed, and let go together after it. */

import { runAll } from "../run-all.js";
import type { Arena } from "./arena.js";
import type { Storage } from "./storage.js";

/**
 * Pins what a backward pass needs, and lets go of all of it at once.
 *
 * @example
 * ```ts
 * import { openRuntime, SavedSet } from "holdfast";
 * const runtime = openRuntime({ memory: "64MiB", print: () => {} });
 * const saved = new SavedSet(runtime.arena, "backward");
 * const x = runtime.step(() => {
 *   const made = runtime.arena.allocate(8, "input");
 *   saved.save(made);
 *   return made;
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

  /** How many storages are pinned. */
  get size(): number {
    return this.#saved.length;
  }

  /** Pins a storage until `release()`. Persistent memory needs no pin: it never dies by a step. */
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
