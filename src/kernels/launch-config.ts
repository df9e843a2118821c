/** The launch config of a kernel on a device: which code, how many blocks, and which parameters. */

import type { KernelSource } from "../driver/index.js";

export interface LaunchConfig {
  /** Identifies the generated code, besides the kernel: a cache key. */
  readonly key: string;
  readonly blocks: number;
  /** The launch parameters between the operands and the kernel's scalars. */
  readonly sizes: readonly number[];
  print(): KernelSource;
}

/**
 * The stride of an input along the columns: 1 (`unit`), or 0 (`none`) if all columns share one value per row. `group`: neighbouring columns
 * of a run share a value, `ColumnRuns.group` of them.
 */
export type ColumnStride = "unit" | "none" | "group";

/** Columns in runs of one length, such as the channels of each image of a channels-last batch. Only with `reducesColumnRuns`. */
export interface ColumnRuns {
  readonly length: number;
  /** Default: no input has the stride `group`. */
  readonly group?: number;
}

export interface InputStrides {
  readonly row: number;
  readonly column: ColumnStride;
  readonly run?: number;
}

/** The iteration space of a column kernel. */
export interface Columns {
  readonly rows: number;
  readonly columns: number;
  /** Each input's row stride in elements, its stride along the columns, and the distance between its runs; default: 0. */
  readonly strides: readonly InputStrides[];
  /** Default: one run. */
  readonly runs?: ColumnRuns;
  /** True for approximate functions, as in row kernels in TF32 and bf16. Set by the backend. Default: false. */
  readonly usesFastMath?: boolean;
}
