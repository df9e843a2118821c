/** A multi-tensor reduction: tensors, and where the results of their chunks go. */

import type { ChunkedReduceKernel } from "../../ir/index.js";
import type { Storage } from "../../runtime/index.js";

export interface ChunkedReduceLaunch {
  readonly kernel: ChunkedReduceKernel;
  /** Each begins at the start of its storage, and none is empty. */
  readonly vectors: readonly { readonly storage: Storage; readonly length: number }[];
  /** One for each chunk of each tensor, in order. */
  readonly results: Storage;
  readonly scalars?: readonly number[];
  /** A view of some bytes of a storage. */
  view(storage: Storage, offset: number, size: number): Storage;
}
