/** A multi-tensor reduction: tensors, and where the results of their chunks go. */

import type { ChunkedReduceKernel } from "../../ir/index.js";
import type { Storage } from "../../runtime/index.js";

export interface ChunkedReduceLaunch {
  readonly kernel: ChunkedReduceKernel;
  /** None is empty. */
  readonly vectors: readonly ReducedVector<Storage>[];
  /** One for each chunk of each tensor, in order. */
  readonly results: Storage;
  readonly scalars?: readonly number[];
  /** A view of some bytes of a storage. */
  view(storage: Storage, offset: number, size: number): Storage;
}

/** A vector that begins at the start of its storage, or that consists of sections. */
export type ReducedVector<Memory> =
  | { readonly length: number; readonly storage: Memory }
  | { readonly length: number; readonly sections: readonly VectorSection<Memory>[] };

/**
 * Elements from `first` on, in the order of memory; all others are zeros. `storage` has the elements, or with a row map compact rows. Then
 * all counts are multiples of four. CUDA, for kernels that `ignoresZeros`.
 */
export interface VectorSection<Memory> {
  readonly first: number;
  readonly length: number;
  readonly storage: Memory;
  /** i32 [length / width]: the position of each row in the storage, or −1 for a row of zeros. */
  readonly rowMap?: { readonly storage: Memory; readonly width: number };
}
