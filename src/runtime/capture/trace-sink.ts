/** The receiver of a trace. While a trace is open, work is recorded instead of submitted. */

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

/** Receives the work of a traced function, and rejects work that cannot be traced. */
export interface TraceSink {
  record(command: LoadedCommand): void;
  upload(items: Iterable<UploadItem>): void;
  /** Adds a guard: a predicate that must hold whenever the traced step is replayed. */
  addGuard(isValid: () => boolean): void;
  /**
   * Makes later writes to persistent memory depend on a value (f64): they happen only if it is finite. Undefined ends
   * the condition.
   */
  writeOnlyIfFinite(value: Storage | undefined): void;
  /** The same, for the writes of one function. */
  writeWhileFinite(value: Storage, body: () => void): void;
  /** Persistent memory that changes whatever these values are. */
  spareWrites(storage: Storage): void;
  /**
   * Makes later writes to persistent memory depend on valid indices: they happen only if `firstInvalid` (f64) is
   * Infinity.
   */
  checkIndices(firstInvalid: Storage, check: IndexCheck): void;
  /** Declares the storage's contents dead until they are written again. */
  discard(storage: Storage): void;
  /**
   * Rejects an action that cannot be traced: reading a value, waiting, opening a step, capturing. `advice` replaces the
   * default advice.
   */
  reject(what: string, label: string, advice?: string): never;
}
