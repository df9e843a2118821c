/** From rows and columns in a GPU's memory to what a printed column kernel follows from and takes. */

import type { ColumnKernel } from "../../../ir/index.js";
import { dtypes } from "../../../ir/index.js";
import type { Columns, LaunchConfig } from "../../launch-config.js";
import { type ColumnLayout, printColumnKernel } from "./column-kernel.js";
import { requireCountable, requireStep } from "./limits.js";

/** How many partial results a column has: of few rows, of as many rows as this or more, and of as many as this. */
const partialsOfFew = 32;
export const partialsOfSome = 128;
export const partialsOfMany = 1024;
const maxThreads = 1024;
/** What memory brings at a time: of rows that lie apart, a block's columns should fill it. */
const sectorBytes = 32;
const maxColumns = 8;
/** What a thread has on its way from memory at a time, over all inputs. */
const loadsUnderWay = 16;

/** `parallelism`: how many blocks run side by side at least. It moves no bits: those follow from the rows alone. */
export function cudaColumnConfig(kernel: ColumnKernel, launch: Columns, parallelism: number): LaunchConfig {
  const { columns, strides } = launch;
  const sizes = columnSizes(kernel, launch);
  const layout = layoutOf(kernel, launch, parallelism);
  let key = `c${layout.parts}/${layout.columns}/${layout.turns}`;
  for (const { column } of strides) key += column === "unit" ? "u" : "n";
  return {
    key,
    blocks: Math.ceil(columns / layout.columns),
    sizes,
    print: () => printColumnKernel(kernel, layout),
  };
}

/** The numbers that a printed kernel takes behind its operands. */
export function columnSizes(kernel: ColumnKernel, { rows, columns, strides }: Columns): readonly number[] {
  requireCountable(kernel, rows, "rows");
  requireCountable(kernel, columns, "columns");
  return [rows, columns, ...strides.map(({ row }) => requireStep(kernel, row))];
}

/** How many partial results a column has: what its bits follow from. */
export function columnPartials(rows: number): number {
  if (rows < partialsOfSome) return partialsOfFew;
  return rows < partialsOfMany ? partialsOfSome : partialsOfMany;
}

/** How many neighbouring columns fill a sector in an input; of half floats it takes two blocks. */
function sectorColumns({ inputs }: ColumnKernel, { strides }: Columns): number {
  const moving = inputs.filter((_, index) => strides[index]?.column === "unit");
  const widest = Math.max(...moving.map((dtype) => dtypes[dtype].bytes), 1);
  return Math.min(maxColumns, sectorBytes / widest);
}

function layoutOf(kernel: ColumnKernel, launch: Columns, parallelism: number): ColumnLayout {
  const { rows, strides } = launch;
  const parts = columnPartials(rows);
  const columns = columnsPerBlock(kernel, launch, parallelism);
  const lanes = Math.min(parts, maxThreads / columns);
  const loadsPerTurn = (parts / lanes) * Math.max(1, kernel.inputs.length);
  let turns = 1;
  while (turns * parts < rows && 2 * turns * loadsPerTurn <= loadsUnderWay) turns *= 2;
  return { strides: strides.map(({ column }) => column), parts, lanes, columns, turns };
}

/**
 * A sector's worth, and fewer where blocks would leave most of the GPU idle: a block then reads as many sectors as before,
 * and more threads share them. Beyond half of the GPU what is read twice would cost more than that brings.
 */
function columnsPerBlock(kernel: ColumnKernel, launch: Columns, parallelism: number): number {
  let count = sectorColumns(kernel, launch);
  while (count > 1 && 4 * Math.ceil(launch.columns / count) <= parallelism) count /= 2;
  return count;
}
