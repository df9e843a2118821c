/**
 * A storage: the small record that stands for bytes on the device. It owns nothing by itself and no finalizer ever
 * looks at it: memory lives and dies by regions, steps, pins and frees, never by garbage collection.
 */

import type { Bytes, Span } from "../../units/index.js";

export interface Storage {
  readonly kind: "persistent" | "step";
  readonly span: Span;
  /** The arena's generation at birth. Of persistent memory: how often its handle was renewed. */
  readonly generation: number;
  /** The op that made it, or the tensor's name. */
  readonly label: string;
  /** The region or arena that made it. Storages of one home may be crossed by one copy; others only look adjacent. */
  readonly home: object;
  /** For a view: the storage whose bytes these are. A view keeps its owner. */
  readonly owner: Storage | undefined;
}

/** The storage that owns the bytes: the owner of a view, or itself. */
export function ownerOf(storage: Storage): Storage {
  return storage.owner ?? storage;
}

/** The part of a storage that a view of it covers, checked. */
export function partOf(storage: Storage, offset: number, size: number): Span | undefined {
  const fits =
    Number.isSafeInteger(offset) &&
    Number.isSafeInteger(size) &&
    offset >= 0 &&
    size > 0 &&
    offset + size <= storage.span.size;
  if (!fits) return undefined;
  return { address: (storage.span.address + offset) as Span["address"], size: size as Bytes };
}
