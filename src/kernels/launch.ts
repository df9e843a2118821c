/** Launches row and column kernels over operands in device memory; printed kernels are kept, one for each layout. */

import type { KernelSource } from "../driver/index.js";
import type { Runtime, Storage } from "../runtime/index.js";
import type { ColumnKernel, RowKernel } from "./ir.js";
import type { Iteration } from "./iteration.js";
import { type ColumnStride, columnsPerBlock, printColumnKernel } from "./wasm-printer/column-kernel.js";
import { printRowKernel } from "./wasm-printer/row-kernel.js";

const printed = new WeakMap<RowKernel | ColumnKernel, Map<string, KernelSource>>();

/** The kernel's code for a layout, printed at its first use. */
function sourceOf(kernel: RowKernel | ColumnKernel, layout: string, print: () => KernelSource): KernelSource {
  const byLayout = printed.get(kernel) ?? new Map<string, KernelSource>();
  printed.set(kernel, byLayout);
  const known = byLayout.get(layout);
  if (known) return known;
  const source = print();
  byLayout.set(layout, source);
  return source;
}

interface Operands {
  /** The inputs, then the outputs. */
  readonly operands: readonly Storage[];
  readonly scalars?: readonly number[];
}

export interface RowLaunch extends Operands {
  readonly kernel: RowKernel;
  readonly iteration: Iteration;
}

/** With no rows, or no elements to store, nothing is launched. */
export function launchRows(runtime: Runtime, { kernel, iteration, operands, scalars = [] }: RowLaunch): void {
  const { layout, blocks, sizes } = iteration;
  if (blocks === 0) return;
  const key = `${layout.outerRank} ${layout.inner.join(" ")}`;
  const source = sourceOf(kernel, key, () => printRowKernel(kernel, layout));
  const values = [...operands, ...sizes, ...scalars];
  runtime.launch({ op: kernel.name, kernel: runtime.kernel(source), blocks, arguments: values });
}

export interface ColumnLaunch extends Operands {
  readonly kernel: ColumnKernel;
  readonly rows: number;
  readonly columns: number;
  /** Each input's step from row to row in elements, and whether it has a column for each. */
  readonly strides: readonly { readonly row: number; readonly column: ColumnStride }[];
}

/** With no columns nothing is launched; with no rows every column becomes what its reduction starts from. */
export function launchColumns(runtime: Runtime, launch: ColumnLaunch): void {
  const { kernel, rows, columns, strides, operands, scalars = [] } = launch;
  if (columns === 0) return;
  const columnStrides = strides.map(({ column }) => column);
  const source = sourceOf(kernel, columnStrides.join(" "), () => printColumnKernel(kernel, columnStrides));
  const steps = strides.map(({ row }) => row >>> 0);
  runtime.launch({
    op: kernel.name,
    kernel: runtime.kernel(source),
    blocks: Math.ceil(columns / columnsPerBlock),
    arguments: [...operands, rows, columns, ...steps, ...scalars],
  });
}
