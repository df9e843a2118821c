/** Grouped column reductions, such as the gradients of biases and of norms' weights. Each keeps the bits that it has alone. */

import { dtypes } from "../../ir/index.js";
import {
  canGroupColumns,
  capabilitiesOf,
  columnScratchBytes,
  isSplitReduction,
  launchBytes,
  maxColumnsPerBlock,
  reducesInThread,
} from "../../kernels/index.js";
import type { Runtime } from "../../runtime/index.js";
import { busyReductionBytes, maxGroupedReductions } from "../cost-model.js";
import type { BufferSlice, ColumnCall, Program } from "../program/program.js";
import { groupCalls } from "./group-calls.js";

export function groupReductions(runtime: Runtime, program: Program): void {
  if (!capabilitiesOf(runtime).combinesKernels) return;
  const isBusy = (columns: readonly ColumnCall[]): boolean =>
    columns.reduce((sum, column) => sum + bytesRead(column), 0) >= busyReductionBytes(runtime.device);
  // Grouped kernels have several threads per column, which idle if a column has few rows.
  const fillsDevice = (column: ColumnCall): boolean => reducesInThread(column, runtime.device.parallelism);
  const canGroup = (columns: readonly ColumnCall[]): boolean =>
    columns.length <= maxGroupedReductions &&
    canGroupColumns(
      runtime,
      columns.map(({ kernel }) => kernel),
    );
  groupCalls<ColumnCall>(program, {
    defersConsumers: true,
    itemOf: ({ work }) =>
      work.kind === "column" && !work.runs && !isBusy([work]) && !fillsDevice(work) ? work : undefined,
    canJoin: ({ items }, column) => !isBusy(items) && canGroup([...items, column]),
    merge({ items: columns }) {
      const scratch = scratchFor(program, columns);
      return { work: { kind: "grouped-reduce", columns, ...(scratch && { scratch }) } };
    },
  });
  for (const node of program.nodes) {
    const { work } = node.call;
    if (work.kind !== "column" || !isSplitReduction(work) || !isNarrow(runtime, work)) continue;
    const scratch = scratchFor(program, [work]);
    if (scratch)
      program.replace(node, { ...node.call, work: { kind: "grouped-reduce", columns: [work], scratch } });
  }
}

/** A block that reads so many launches' worth takes longer than two phases. */
const longReduction = 4;

/**
 * True if a kernel of one phase, with a block for a few columns, leaves multiprocessors idle for longer than a launch takes. In two phases,
 * blocks share the rows of a column.
 */
function isNarrow({ device }: Runtime, { rows, columns }: ColumnCall): boolean {
  const isLong = rows * maxColumnsPerBlock * dtypes.f32.bytes > longReduction * launchBytes;
  return isLong && columns < maxColumnsPerBlock * device.parallelism;
}

/** Allocates the partials of two-phase reductions; undefined if all of them take one phase. */
export function scratchFor(program: Program, columns: readonly ColumnCall[]): BufferSlice | undefined {
  const size = columnScratchBytes(columns);
  return size === 0 ? undefined : { buffer: program.makeBuffer(size, "reductions scratch"), offset: 0, size };
}

function bytesRead({ kernel, rows, columns, strides }: ColumnCall): number {
  return kernel.inputs.reduce((sum, dtype, index) => {
    const width = strides[index]?.column === "unit" ? columns : 1;
    return sum + rows * width * dtypes[dtype].bytes;
  }, 0);
}
