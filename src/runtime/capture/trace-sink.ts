/** Imagined work: what a function would send to the device, told to a listener instead. */

import type { Storage } from "../memory/storage.js";
import type { UploadItem } from "../transfer/transfer.js";
import type { LaunchRequest } from "./work.js";

/** A launch, a fill or a copy, as it was asked for. */
export type WorkCommand =
  | { readonly kind: "launch"; readonly request: LaunchRequest }
  | { readonly kind: "fill"; readonly target: Storage; readonly byte: number }
  | { readonly kind: "copy"; readonly target: Storage; readonly source: Storage };

/** Indices that imagined work looks at: of which op they are, and how many there may be. */
export interface IndexCheck {
  readonly op: string;
  readonly size: number;
  /** What there is, for messages: "axis 0 has 7". */
  readonly range: string;
}

/** Who hears what would be done, and answers for what can't be imagined. */
export interface TraceSink {
  work(piece: WorkCommand): void;
  upload(items: Iterable<UploadItem>): void;
  /** Hears of something that what is imagined follows from, and that may change: it is asked whether it still holds. */
  assume(holds: () => boolean): void;
  /** From here on persistent memory is to be changed only if this number (f64) is finite; without one, in any case again. */
  guard(number: Storage | undefined): void;
  /** From here on, persistent memory changes only if `found` (f64) is Infinity, which means that no index is bad. */
  checkIndices(found: Storage, check: IndexCheck): void;
  /** What this memory holds is wanted no longer, unless it is written again: nothing that comes later asks for it. */
  forget(storage: Storage): void;
  /** Called for a look at a value, a wait, a step or a capture; throws, with advice of the caller's where there is better. */
  reject(what: string, label: string, advice?: string): never;
}
