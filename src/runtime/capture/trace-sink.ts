/** Traces: while one is open, work is recorded instead of submitted. */

import type { Storage } from "../memory/storage.js";
import type { UploadItem } from "../transfer/transfer.js";
import type { LoadedCommand } from "./command.js";

/** Indices that a traced step checks on the device. */
export interface IndexCheck {
  readonly op: string;
  /** Indices are 0 … size − 1. */
  readonly size: number;
  /** The valid range, for messages: "axis 0 has 7". */
  readonly range: string;
}

/** Receives the work of a function that is traced, and rejects what can't be traced. */
export interface TraceSink {
  record(command: LoadedCommand): void;
  upload(items: Iterable<UploadItem>): void;
  /** Registers a guard: a predicate that must still hold for the traced step to be replayed. */
  addGuard(isValid: () => boolean): void;
  /** From here on persistent memory changes only if this number (f64) is finite; without a number, always. */
  writeOnlyIfFinite(value: Storage | undefined): void;
  /** From here on persistent memory changes only if `found` (f64) is Infinity, which means that no index is bad. */
  checkIndices(found: Storage, check: IndexCheck): void;
  /** Declares the storage's contents dead until they are written again. */
  discard(storage: Storage): void;
  /** Throws: the function reads a value, waits, opens a step or captures. `advice` replaces the usual way out. */
  reject(what: string, label: string, advice?: string): never;
}
