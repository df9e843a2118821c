/** The descriptions of scans and scatters along one axis. */

import type { Storage } from "../../runtime/index.js";
import type { ScanDtype } from "./element.js";

export interface Scan {
  readonly dtype: ScanDtype;
  /** Input and output are [outer, length, inner], contiguous, and may be the same storage. */
  readonly outer: number;
  readonly length: number;
  readonly inner: number;
  readonly input: Storage;
  readonly output: Storage;
  /** The operation of the scan. */
  readonly op: "add";
  /** From the end of the axis to its start: the gradient of a forward scan. */
  readonly isReversed?: boolean;
}

/** Strides in elements. */
export interface ScatterStrides {
  readonly outerSource: number;
  /** From a row of the source to the next one. */
  readonly sourceRow: number;
}

/** Everything is contiguous by default; the target must not share elements with the index or the source. */
export interface ScatterAdd {
  readonly dtype: ScanDtype;
  readonly outer: number;
  /** Length of the target's axis. */
  readonly length: number;
  readonly inner: number;
  /** Entries of source and index along the axis. */
  readonly count: number;
  /** i32: [count] if `isIndexShared`, else [outer, count, inner]. */
  readonly index: Storage;
  readonly isIndexShared: boolean;
  /** [outer, count, inner] */
  readonly source: Storage;
  /** [outer, length, inner] */
  readonly target: Storage;
  /** The layout of the source, if it is not contiguous. CUDA, with `isIndexShared`. */
  readonly strides?: ScatterStrides;
  /** The sums start at zero, not at the target's values, and the whole target is written. */
  readonly overwrites?: boolean;
  /** Buffers of at least the sizes that the backend's `scatterScratchBytes` returns. */
  readonly scratch?: readonly Storage[];
}

/** Independent scatters with an index per row, of one dtype; all of them overwrite their targets, or none does. */
export interface ScatterGroup {
  readonly members: readonly ScatterAdd[];
  /** Buffers of at least the sizes that the backend's `scatterScratchBytes` returns for all members. */
  readonly scratch: readonly Storage[];
}

/** A scatter without its memory. */
export type ScatterShape = Omit<ScatterAdd, "index" | "source" | "target" | "scratch">;
