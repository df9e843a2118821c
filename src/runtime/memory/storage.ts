/**
 * A storage: a small record that names bytes on the device. It owns nothing, and no finalizer looks at it: memory lives
 * and dies by regions, steps, pins and frees, never by garbage collection.
 */

import type { Bytes, Span } from "../../units/index.js";

/** Alignment and size granularity of every storage, for vectorized loads. */
export const alignment = 256;

/** A range of device memory with its owner and its generation. */
export interface Storage {
  readonly kind: "persistent" | "step";
  readonly span: Span;
  /** The arena's generation at allocation; for persistent memory, the number of times its handle was renewed. */
  readonly generation: number;
  /** The op that allocated it, or the tensor's name. */
  readonly label: string;
  /** The region or arena that allocated it. One copy may cross adjacent storages only if they have the same home. */
  readonly home: object;
  /** For a view: the storage that owns the bytes. A view keeps its owner alive. */
  readonly owner: Storage | undefined;
}

/** The storage that owns the bytes: the owner of a view, or the storage itself. */
export function ownerOf(storage: Storage): Storage {
  return storage.owner ?? storage;
}

/** The span of a view of a storage; undefined if it does not fit. */
export function viewSpan(storage: Storage, offset: number, size: number): Span | undefined {
  const fits =
    Number.isSafeInteger(offset) &&
    Number.isSafeInteger(size) &&
    offset >= 0 &&
    size > 0 &&
    offset + size <= storage.span.size;
  if (!fits) return undefined;
  return { address: (storage.span.address + offset) as Span["address"], size: size as Bytes };
}
