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

/** The stride of an input along the columns: 1 (`unit`), or 0 (`none`) if all columns share one value per row. */
export type ColumnStride = "unit" | "none";

/** The iteration space of a column kernel. */
export interface Columns {
  readonly rows: number;
  readonly columns: number;
  /** Each input's row stride in elements, and its stride along the columns. */
  readonly strides: readonly { readonly row: number; readonly column: ColumnStride }[];
}
