/**
 * Attention of one new position to a cache, the step of generation: it rotates the query and the key, writes the key and the value to the
 * cache, and attends to the positions up to the new one.
 */

import type { Storage } from "../../runtime/index.js";

export type CachedDtype = "f32" | "f16" | "bf16";

/** Heads of the new position: [batch, heads, width], with a contiguous head. Strides in elements. */
export interface NewHeads {
  readonly storage: Storage;
  readonly batchStride: number;
  readonly headStride: number;
}

/** Numbers of each sequence. The batch stride is 0 if all sequences share them. */
interface OfSequence {
  readonly storage: Storage;
  readonly batchStride: number;
}

export interface CachedShape {
  /** Of the query, the key, the value, both caches and the result. Sums are f32. */
  readonly dtype: CachedDtype;
  readonly batch: number;
  readonly heads: number;
  /** Heads of keys and values; each serves `heads / keyHeads` neighbouring heads of queries. */
  readonly keyHeads: number;
  readonly width: number;
  /** The cache's positions. */
  readonly length: number;
  /** An upper bound of all positions + 1. It changes how the work is divided, and not which columns are read. */
  readonly columns: number;
}

export interface CachedAttentionProblem extends CachedShape {
  readonly query: NewHeads;
  readonly key: NewHeads;
  readonly value: NewHeads;
  /** [sequences, length, keyHeads, width], contiguous, with at least `batch` sequences. */
  readonly keyCache: Storage;
  readonly valueCache: Storage;
  /** i32, below `length`. */
  readonly positions: OfSequence;
  /** Cosines and sines, f32 [width / 2], of the pairs (i, i + width / 2). */
  readonly rotation?: { readonly cosines: OfSequence; readonly sines: OfSequence };
  /** The positions that the new one attends to, itself included. Default: all. */
  readonly window?: number;
  readonly scale: number;
  /** [batch, heads, width], contiguous. */
  readonly out: Storage;
  /** At least `cachedScratchBytes` bytes; undefined if that is 0. */
  readonly scratch?: Storage | undefined;
}
