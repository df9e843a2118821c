/**
 * Makes reductions of columns together that leave most of a GPU idle one by one: the gradients of biases, and of the weights of
 * norms. Each has the bits that it has alone.
 */

import { dtypes } from "../../ir/index.js";
import { canGroupColumns, columnScratchBytes } from "../../kernels/index.js";
import type { Runtime } from "../../runtime/index.js";
import type { BufferSlice, Call, ColumnCall } from "../program/program.js";
import { bufferMaker } from "../program/uses.js";
import { type Grouping, groupCalls } from "./group-calls.js";

/**
 * So many bytes for each multiprocessor take it several times as long to read as a launch takes to begin. More would wait longer than
 * needed: out of the cache, and in memory that the step could use.
 */
const enoughBytes = 1024 * 1024;

/** How many reductions are made together. */
const maxReductions = 12;

export function groupReductions(runtime: Runtime, calls: readonly Call[]): readonly Call[] {
  if (runtime.device.kind !== "cuda") return calls;
  const scratchFor = scratchMaker(calls);
  const grouping: Grouping<ColumnCall> = {
    problemOf: ({ work }) => (work.kind === "column" && !grouping.isEnough([work]) ? work : undefined),
    isPossible: (problems) =>
      problems.length <= maxReductions &&
      canGroupColumns(
        runtime,
        problems.map(({ kernel }) => kernel),
      ),
    isEnough: (problems) =>
      problems.reduce((sum, one) => sum + bytesRead(one), 0) >= enoughBytes * runtime.device.parallelism,
    workOf(columns) {
      const scratch = scratchFor(columns);
      return { kind: "grouped-reduce", columns, ...(scratch && { scratch }) };
    },
  };
  return groupCalls(calls, grouping);
}

/** Makes what is between the two steps of reductions; nothing where there is only one. */
export function scratchMaker(
  calls: readonly Call[],
): (columns: readonly ColumnCall[]) => BufferSlice | undefined {
  const makeBuffer = bufferMaker(calls);
  return (columns) => {
    const size = columnScratchBytes(columns);
    return size === 0 ? undefined : { buffer: makeBuffer(size, "reductions scratch"), offset: 0, size };
  };
}

function bytesRead({ kernel, rows, columns, strides }: ColumnCall): number {
  return kernel.inputs.reduce((sum, dtype, index) => {
    const width = strides[index]?.column === "unit" ? columns : 1;
    return sum + rows * width * dtypes[dtype].bytes;
  }, 0);
}
