/**
 * Limits of a Parquet file, checked before decoding. Run lengths and compression let a few hundred bytes expand to gigabytes, so
 * each limit depends on the file's size and its declared rows.
 */

import { formatBytes, KiB, MiB } from "../../units/index.js";
import { badData } from "../rejection.js";

/** A file with 10,000 row groups of 50 columns has about 50 MiB. */
export const maxFooterBytes = 64 * MiB;

/** 190 years of minutes. */
const maxRows = 100_000_000;
/** Max. rows: a constant, plus a number per byte of the file. */
const freeRows = 100_000;
const rowsPerByte = 64;

/** V8 turns a longer array into a hash table, which takes ten times the memory and can abort the process. */
const maxPageValues = 32_000_000;
/** Limits of one file; the values of its columns may be longer for one reader than for another. */
export interface ValueLimits {
  /** Max. bytes of one value. */
  readonly valueBytes: number;
  /** Max. decompressed bytes of the pages that are read, and max. characters of their texts. */
  readonly maxBytes: number;
}

/** Bytes of a page in addition to its values: levels, run headers, padding. */
export const pageOverhead = 64 * KiB;

export function checkRows(path: string, rows: number, fileBytes: number): void {
  const allowed = Math.min(maxRows, freeRows + rowsPerByte * fileBytes);
  if (rows <= allowed) return;
  throw badData(
    path,
    `it declares ${rows} rows in ${formatBytes(fileBytes)}; at most ${allowed} are read from a file of this size.`,
    "If the file is valid, split it, or write it with less compression or as CSV.",
    { rows, allowed, fileBytes },
  );
}

/** Max. decompressed bytes of a file's pages. */
export function decodedLimit(rows: number, columns: number, { valueBytes, maxBytes }: ValueLimits): number {
  return Math.min(maxBytes, 64 * MiB + rows * columns * valueBytes);
}

export function checkPageSize(values: number, bytes: number, maxValues: number, maxValueBytes: number): void {
  if (!(Number.isInteger(values) && values >= 0 && values <= Math.min(maxValues, maxPageValues)))
    throw new RangeError(`a page declares ${values} values, but at most ${maxValues} are possible`);
  if (!(Number.isInteger(bytes) && bytes >= 0 && bytes <= pageOverhead + values * maxValueBytes))
    throw new RangeError(`a page of ${values} values declares ${bytes} bytes`);
}
