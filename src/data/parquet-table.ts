/** Tables in Parquet files. */

import { checkOptions, HoldfastError } from "../errors/index.js";
import { GiB, MiB } from "../units/index.js";
import { type ParquetNumbers, type ParquetReadLimits, readParquetColumns } from "./parquet/index.js";
import { badData } from "./rejection.js";

/** Options of `readParquet`. */
export interface ReadParquetOptions {
  /** The names of the columns to read. Default: all columns. */
  readonly columns?: readonly string[];
  /** The maximum size of all columns, because a small file can hold a very large table. Default: 4 GiB. */
  readonly maxBytes?: number;
}

/** The columns of a table by name. */
export interface ParquetTable {
  readonly rows: number;
  /**
   * Numbers in a typed array of the column's type, and everything else as text. Times are milliseconds since 1970 (UTC), and booleans are 0 and
   * 1. If a column of integers or booleans has missing values, it is a Float64Array with NaN for them; a missing text is null.
   */
  readonly columns: Readonly<Record<string, ParquetNumbers | readonly (string | null)[]>>;
}

/** More than a long document. */
const valueBytes = 16 * MiB;

/**
 * Reads a table from a Parquet file. A worker thread decodes it, within limits of memory and time. Columns of lists or records are rejected; select
 * others with `columns`.
 *
 * @example
 * ```ts
 * import { mkdtempSync } from "node:fs";
 * import { tmpdir } from "node:os";
 * import { join } from "node:path";
 * import { crossasset, readParquet } from "holdfast";
 * const path = join(mkdtempSync(join(tmpdir(), "tables-")), "bars.parquet");
 * await crossasset.writeBars(path, crossasset.generateBars({ bars: 100, seed: 1 }));
 * const { rows, columns } = await readParquet(path, { columns: ["close", "volume"] });
 * console.log(rows, Object.keys(columns), columns["close"] instanceof Float64Array); // → 100 [ 'close', 'volume' ] true
 * ```
 */
export function readParquet(path: string, options: ReadParquetOptions = {}): Promise<ParquetTable> {
  checkOptions("readParquet", options, { columns: true, maxBytes: true });
  return readParquetTable(path, options);
}

/** `readParquet`; tests decode on their own thread. */
export async function readParquetTable(
  path: string,
  { columns: wanted, maxBytes = 4 * GiB }: ReadParquetOptions,
  limits: Partial<ParquetReadLimits> = {},
): Promise<ParquetTable> {
  if (!(maxBytes > 0)) {
    throw new HoldfastError("BAD_ARGUMENT", `readParquet: maxBytes is ${maxBytes}; it must be above 0.`);
  }
  const select = (names: readonly string[]): readonly number[] => positionsOf(path, names, wanted ?? names);
  const columns = await readParquetColumns(path, select, { valueBytes, maxBytes, ...limits });
  const entries = columns.map(({ name, values }) => [name, values] as const);
  // Without a prototype, no name of a column has another meaning.
  return {
    rows: columns[0]?.values.length ?? 0,
    columns: Object.assign(Object.create(null), Object.fromEntries(entries)),
  };
}

function positionsOf(path: string, names: readonly string[], wanted: readonly string[]): readonly number[] {
  return wanted.map((name, index) => {
    const position = names.indexOf(name);
    if (position < 0) {
      throw new HoldfastError(
        "BAD_ARGUMENT",
        `readParquet: ${path} has no column "${name}"; it has ${names.slice(0, 50).join(", ").slice(0, 500)}.`,
        { numbers: { path, column: name } },
      );
    }
    if (names.lastIndexOf(name) !== position || wanted.indexOf(name) !== index)
      throw badData(path, `the column "${name}" comes twice.`, "Select each column once, with `columns`.");
    return position;
  });
}
