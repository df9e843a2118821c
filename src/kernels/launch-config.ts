/** How one device runs a kernel over given operands: which print of it, and with which numbers. */

import type { KernelSource } from "../driver/index.js";

export interface LaunchConfig {
  /** What the printed code follows from, besides the kernel: prints are kept by it. */
  readonly key: string;
  readonly blocks: number;
  /** The numbers between the operands and the kernel's own scalars, as the printed code takes them. */
  readonly sizes: readonly number[];
  print(): KernelSource;
}

/** Does an input of a column kernel have a column for each of the kernel's, or one for all of them? */
export type ColumnStride = "unit" | "none";

/** Over which rows and columns a column kernel runs. */
export interface Columns {
  readonly rows: number;
  readonly columns: number;
  /** Each input's step from row to row in elements, and whether it has a column for each. */
  readonly strides: readonly { readonly row: number; readonly column: ColumnStride }[];
}
