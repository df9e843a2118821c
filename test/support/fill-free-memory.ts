/** Fills all free memory with garbage, to expose stale readers of it. */

import type { Runtime, Storage } from "holdfast/internals";
import { rejectionOf } from "./rejections.js";

/** Allocates all free memory of the arena and fills it with one byte. */
export function fillFreeMemory(runtime: Runtime, byte: number): readonly Storage[] {
  const storages: Storage[] = [];
  for (let size = 1024 * 1024; size >= 256; size /= 2) {
    while (rejectionOf(() => storages.push(runtime.arena.allocate(size, "stranger"))) === undefined);
  }
  for (const storage of storages) runtime.fill(storage, byte);
  return storages;
}
