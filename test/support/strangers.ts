/** Fills all free memory with garbage, to expose stale readers of it. */

import type { Runtime, Storage } from "holdfast/internals";
import { rejectionOf } from "./rejections.js";

/** Allocates all free memory of the arena and fills it with one byte. */
export function fillTheRest(runtime: Runtime, byte: number): readonly Storage[] {
  const strangers: Storage[] = [];
  for (let size = 1024 * 1024; size >= 256; size /= 2) {
    while (rejectionOf(() => strangers.push(runtime.arena.allocate(size, "stranger"))) === undefined);
  }
  for (const stranger of strangers) runtime.fill(stranger, byte);
  return strangers;
}
