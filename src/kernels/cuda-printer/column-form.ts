/** From rows and columns in a GPU's memory to what a printed column kernel follows from and takes. */

import type { ColumnKernel } from "../ir.js";
import type { Columns, LaunchForm } from "../launch-form.js";
import { columnsPerBlock, printColumnKernel } from "./column-kernel.js";
import { requireCountable, requireStep } from "./limits.js";

/** With fewer rows than this, 32 threads share a column, and 128 from there on. */
const manyRows = 1024;

export function cudaColumnForm(kernel: ColumnKernel, { rows, columns, strides }: Columns): LaunchForm {
  requireCountable(kernel, rows, "rows");
  requireCountable(kernel, columns, "columns");
  const rowLanes = rows < manyRows ? 32 : 128;
  let key = `c${rowLanes}`;
  for (const { column } of strides) key += column === "unit" ? "u" : "n";
  return {
    key,
    blocks: Math.ceil(columns / columnsPerBlock),
    sizes: [rows, columns, ...strides.map(({ row }) => requireStep(kernel, row))],
    print: () => printColumnKernel(kernel, { strides: strides.map(({ column }) => column), rowLanes }),
  };
}
