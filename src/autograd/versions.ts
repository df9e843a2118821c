/**
 * Counts the in-place writes to each storage. All writes: so that backward can detect that a saved tensor has changed.
 * Recorded writes: so that other values over the same memory are not taken for their original contents.
 */

import { ownerOf, type Storage } from "../runtime/index.js";

const writes = new WeakMap<Storage, number>();
const recordedWrites = new WeakMap<Storage, number>();

export function versionOf(storage: Storage | undefined): number {
  return storage ? (writes.get(ownerOf(storage)) ?? 0) : 0;
}

/** Records that a storage's bytes were overwritten. */
export function noteWrite(storage: Storage | undefined): void {
  if (storage) writes.set(ownerOf(storage), versionOf(storage) + 1);
}

export function recordedVersionOf(storage: Storage | undefined): number {
  return storage ? (recordedWrites.get(ownerOf(storage)) ?? 0) : 0;
}

/** Records a write that is part of the graph: the storage now holds the result of another op. */
export function noteRecordedWrite(storage: Storage | undefined): void {
  if (storage) recordedWrites.set(ownerOf(storage), recordedVersionOf(storage) + 1);
}
