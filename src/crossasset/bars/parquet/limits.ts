/**
 * How much a Parquet file may ask for before anything of it is decoded. Run lengths and compression let a few hundred bytes
 * stand for gigabytes, so each limit follows from the file's size and from the rows it declares.
 */

import { formatBytes, KiB, MiB } from "../../../units/index.js";
import { badBars } from "../rejection.js";

/** A file with 10,000 row groups of 50 columns has about 50 MiB. */
export const maxFooterBytes = 64 * MiB;

/** 190 years of minutes. */
const maxRows = 100_000_000;
/** A file may declare so many rows whatever its size, and so many more for each of its bytes. */
const freeRows = 100_000;
const rowsPerByte = 64;

/** V8 makes a longer array a hash table, which takes ten times the memory and ends the process where it can't grow. */
const maxPageValues = 32_000_000;
/** More than any number or time takes, as text too. */
export const maxValueBytes = 100;
/** What a page may have beyond its values: levels, headers of runs, blocks that are padded. */
export const pageOverhead = 64 * KiB;

export function checkRows(path: string, rows: number, fileBytes: number): void {
  const allowed = Math.min(maxRows, freeRows + rowsPerByte * fileBytes);
  if (rows <= allowed) return;
  throw badBars(
    path,
    `it declares ${rows} rows in ${formatBytes(fileBytes)}; at most ${allowed} are read from a file of this size.`,
    "If the file is sound, split it, or write it with less compression or as CSV.",
    { rows, allowed, fileBytes },
  );
}

/** The bytes that the pages of a whole file may have once they are decompressed. */
export function decodedLimit(rows: number, columns: number): number {
  return 64 * MiB + rows * columns * maxValueBytes;
}

export function checkPageSize(values: number, bytes: number, maxValues: number): void {
  if (!(Number.isInteger(values) && values >= 0 && values <= Math.min(maxValues, maxPageValues)))
    throw new RangeError(`a page declares ${values} values where at most ${maxValues} can be`);
  if (!(Number.isInteger(bytes) && bytes >= 0 && bytes <= pageOverhead + values * maxValueBytes))
    throw new RangeError(`a page of ${values} values declares ${bytes} bytes`);
}
