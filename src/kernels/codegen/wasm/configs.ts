/** Selects the layout, the blocks and the launch parameters of WebAssembly kernels. */

import { HoldfastError } from "../../../errors/index.js";
import type { ColumnKernel, Expression, RowKernel } from "../../../ir/index.js";
import { type Axis, type InnerStride, type Iteration, innerStrideOf } from "../../../ir/index.js";
import type { Storage } from "../../../runtime/index.js";
import type { Columns, LaunchConfig } from "../../launch-config.js";
import { changeConditionOf } from "../unchanged-rows.js";
import { columnsPerBlock, printColumnKernel } from "./column-kernel.js";
import type { Lanes } from "./elements.js";
import { elementsPerBlock } from "./loops.js";
import { lanesOf, printRowKernel } from "./row-kernel.js";

/** The SIMD width of a row. The order of a row's sum follows from it, so that fusion has to preserve it. */
export function rowLanesOf(kernel: RowKernel, { row }: Iteration): Lanes {
  return lanesOf(
    kernel,
    row.strides.map((_, operand) => innerStrideOf(row, operand)),
  );
}

export function wasmRowConfig(
  kernel: RowKernel,
  iteration: Iteration,
  operands: readonly Storage[] = [],
): LaunchConfig {
  const { kind, outer, row, elements } = iteration;
  if (kernel.outputs.some(({ per }) => per === "column")) {
    throw new HoldfastError(
      "UNSUPPORTED",
      `Kernel "${kernel.name}" outputs column sums, which row kernels support only on a GPU. Use a column kernel.`,
    );
  }
  const changes = changeConditionOf(kernel, iteration, operands);
  if (kind === "rows" || outer.length > 0) return configOf(kernel, outer, row, elements, changes);
  // One long vector is divided into rows, so that threads can share it.
  const size = Math.min(row.size, elementsPerBlock);
  const rows = {
    size: Math.ceil(row.size / Math.max(1, size)),
    strides: row.strides.map((stride) => stride * size),
  };
  return configOf(kernel, [rows], { size, strides: row.strides }, elements);
}

/** The last row of a divided vector may be shorter: `elements` is the total. */
function configOf(
  kernel: RowKernel,
  outer: readonly Axis[],
  row: Axis,
  elements: number,
  changes?: Expression,
): LaunchConfig {
  const rows = outer.reduce((product, { size }) => product * size, 1);
  const inner = row.strides.map((_, operand): InnerStride => innerStrideOf(row, operand));
  const rowsPerBlock = Math.max(1, Math.floor(elementsPerBlock / Math.max(1, row.size)));
  const perOperand = row.strides.flatMap((stride, operand) => [
    ...outer.map(({ strides }) => strides[operand] ?? 0),
    ...(inner[operand] === "any" ? [stride] : []),
  ]);
  return {
    key: `${outer.length} ${inner.join(" ")}${changes ? " skip" : ""}`,
    blocks: Math.ceil(rows / rowsPerBlock),
    sizes: [
      rows,
      row.size,
      rowsPerBlock,
      elements,
      ...outer.map(({ size }) => size),
      // Negative strides (of a flipped view) are passed as their 32-bit pattern.
      ...perOperand.map((stride) => stride >>> 0),
    ],
    print: () => printRowKernel(kernel, { outerRank: outer.length, inner, changes }),
  };
}

export function wasmColumnConfig(kernel: ColumnKernel, { rows, columns, strides }: Columns): LaunchConfig {
  if (kernel.outputLayout) {
    throw new HoldfastError(
      "UNSUPPORTED",
      `Kernel "${kernel.name}" stores results with strides, which only a GPU supports. Store contiguous results, then copy them.`,
    );
  }
  const perColumn = strides.map(({ column }) => column);
  return {
    key: perColumn.join(" "),
    blocks: Math.ceil(columns / columnsPerBlock),
    sizes: [rows, columns, ...strides.map(({ row }) => row >>> 0)],
    print: () => printColumnKernel(kernel, perColumn),
  };
}
