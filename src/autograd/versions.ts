/** Counts the writes in place to each storage, so that backward can tell whether what it saved is still what it was. */

import { ownerOf, type Storage } from "../runtime/index.js";

const writes = new WeakMap<Storage, number>();

export function versionOf(storage: Storage | undefined): number {
  return storage ? (writes.get(ownerOf(storage)) ?? 0) : 0;
}

/** Notes that a storage's bytes were changed after they had been made. */
export function noteWrite(storage: Storage | undefined): void {
  if (storage) writes.set(ownerOf(storage), versionOf(storage) + 1);
}
