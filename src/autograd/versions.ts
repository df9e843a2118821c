/**
 * Counts the writes in place to each storage: all of them, so that backward can tell whether what it saved is still what it
 * was; and the recorded ones, so that other values over the same memory are not taken for what they were made of.
 */

import { ownerOf, type Storage } from "../runtime/index.js";

const writes = new WeakMap<Storage, number>();
const recordedWrites = new WeakMap<Storage, number>();

export function versionOf(storage: Storage | undefined): number {
  return storage ? (writes.get(ownerOf(storage)) ?? 0) : 0;
}

/** Notes that a storage's bytes were changed after they had been made. */
export function noteWrite(storage: Storage | undefined): void {
  if (storage) writes.set(ownerOf(storage), versionOf(storage) + 1);
}

export function recordedVersionOf(storage: Storage | undefined): number {
  return storage ? (recordedWrites.get(ownerOf(storage)) ?? 0) : 0;
}

/** Notes a write that is part of the graph: what a storage holds now was made by another op than before. */
export function noteRecordedWrite(storage: Storage | undefined): void {
  if (storage) recordedWrites.set(ownerOf(storage), recordedVersionOf(storage) + 1);
}
