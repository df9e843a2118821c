/** Reads bars from a Parquet file. */

import { setImmediate } from "node:timers/promises";
import { type ParquetColumn, type ParquetReadLimits, readParquetColumns } from "../../data/index.js";
import type { Bars } from "./bars.js";
import { BarColumns, findColumns } from "./columns.js";

/** More than any number or time needs, even as text. */
const valueBytes = 100;

/** The rows are checked in slices, with the event loop in between. */
const rowsPerSlice = 65_536;

export async function readParquet(path: string, limits: Partial<ParquetReadLimits> = {}): Promise<Bars> {
  const select = (names: readonly string[]): readonly number[] => findColumns(path, names);
  const columns = await readParquetColumns(path, select, { valueBytes, maxBytes: Infinity, ...limits });
  const bars = new BarColumns(path);
  const cells = new Array<unknown>(columns.length);
  const rows = columns[0]?.values.length ?? 0;
  for (let row = 0; row < rows; row++) {
    if (row % rowsPerSlice === rowsPerSlice - 1) await setImmediate();
    for (const [index, column] of columns.entries()) cells[index] = cellOf(column, row);
    bars.add(cells);
  }
  return bars.finish();
}

/** A value as a cell: a number, a bigint, a Date or text; null if it is missing. */
function cellOf({ values, isTime, missing }: ParquetColumn, row: number): unknown {
  if (missing?.[row]) return null;
  const value = values[row];
  return isTime && typeof value === "number" ? new Date(value) : value;
}
