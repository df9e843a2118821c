/** The memory traffic of a call. */

import { dtypes, factsOf, type Iteration, inputDtypes } from "../../ir/index.js";
import { sectorBytes } from "../../kernels/index.js";
import { accessesOf, type BufferSlice, type Call, type RowCall } from "./program.js";

export interface Traffic {
  readonly read: number;
  readonly written: number;
}

/**
 * The bytes that a call reads and writes, each slice once. Of a slice that a row kernel accesses with gaps, or of which it picks rows by
 * index, the visited elements count. So do those of a scatter's source with gaps between its rows.
 */
export function bytesOf(call: Call): Traffic {
  const visited = visitedBytes(call);
  const [reads, writes]: [Map<string, number>, Map<string, number>] = [new Map(), new Map()];
  const note = (into: Map<string, number>, slice: BufferSlice): void => {
    const { buffer, offset, size } = slice;
    into.set(`${buffer.id} ${offset} ${size}`, Math.min(size, visited.get(slice) ?? size));
  };
  for (const access of accessesOf(call)) {
    if (access.reads) note(reads, access.slice);
    if (access.writes) note(writes, access.slice);
  }
  return { read: sum(reads.values()), written: sum(writes.values()) };
}

/** By slice, the bytes of the elements that row kernels and scatters visit, if they may be fewer than all. */
function visitedBytes({ work }: Call): ReadonlyMap<BufferSlice, number> {
  const visited = new Map<BufferSlice, number>();
  const rows = work.kind === "row" ? [work] : work.kind === "combo" ? work.rows : [];
  for (const row of rows) {
    for (const [operand, slice] of row.operands.entries())
      visited.set(slice, (visited.get(slice) ?? 0) + operandBytes(row, operand));
  }
  const scatters = work.kind === "scatter" ? [work] : work.kind === "grouped-scatter" ? work.scatters : [];
  for (const { source, shape } of scatters) {
    const { outer, count, inner, dtype } = shape;
    visited.set(source, outer * count * inner * dtypes[dtype].bytes);
  }
  return visited;
}

function operandBytes({ kernel, iteration }: RowCall, operand: number): number {
  const dtype = kernel.inputs[operand] ?? kernel.outputs[operand - kernel.inputs.length]?.dtype ?? "f32";
  const { bytes } = inputDtypes[dtype];
  const { isReadAtIndex } = factsOf(kernel);
  // Memory is read in sectors: neighbours in a row share one, elements with a stride do not.
  const isContiguous = Math.abs(iteration.row.strides[operand] ?? 0) <= 1 || iteration.row.size <= 1;
  const elements = isReadAtIndex[operand] ? iteration.elements : visitedElements(iteration, operand);
  return elements * (isContiguous ? bytes : Math.max(bytes, sectorBytes));
}

/** Elements along axes on which the operand is constant count once. */
function visitedElements({ outer, row }: Iteration, operand: number): number {
  return [...outer, row].reduce(
    (count, { size, strides }) => (strides[operand] === 0 ? count : count * size),
    1,
  );
}

function sum(sizes: Iterable<number>): number {
  let total = 0;
  for (const size of sizes) total += size;
  return total;
}
