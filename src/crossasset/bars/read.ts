/** Reads a file of bars, depending on its extension. */

import { stat } from "node:fs/promises";
import { badData, wrapFault } from "../../data/index.js";
import type { Bars } from "./bars.js";
import { readCsv } from "./read-csv.js";
import { readParquet } from "./read-parquet.js";

export type BarsFormat = "csv" | "parquet";

/**
 * Reads bars from a CSV or a Parquet file. Columns may be in any order; names ignore case; other columns are ignored. Times are ISO
 * 8601 (default zone: UTC), or numbers: seconds below 1e11, else milliseconds. Whole numbers from 19000101 to 21991231 are days such
 * as 20200131. The first invalid row is an error with its number, not counting the header. Parquet is decoded in a worker thread
 * with limits of memory and time.
 *
 * @example
 * ```ts
 * import { mkdtempSync } from "node:fs";
 * import { tmpdir } from "node:os";
 * import { join } from "node:path";
 * import { crossasset } from "holdfast";
 * const path = join(mkdtempSync(join(tmpdir(), "bars-")), "market.csv");
 * await crossasset.writeBars(path, crossasset.generateBars({ bars: 100, seed: 1 }));
 * const bars = await crossasset.readBars(path);
 * console.log(bars.time.length); // → 100
 * ```
 */
export async function readBars(path: string): Promise<Bars> {
  const format = formatOf(path);
  const stats = await stat(path).catch((error: unknown) => {
    throw wrapFault(path, "it does not exist or is not accessible", error, "Check the path.");
  });
  // A folder has no bytes, and reading a pipe or a device may never end.
  if (!stats.isFile()) throw badData(path, "it is a folder, a pipe or a device.", "Use a file.");
  if (stats.size === 0) throw badData(path, "it is empty.", "Use a file with bars.");
  return format === "csv" ? await readCsv(path) : await readParquet(path);
}

/** The format for a path's extension. */
export function formatOf(path: string): BarsFormat {
  const [, end] = /\.(csv|parquet)$/i.exec(path) ?? [];
  const format = end?.toLowerCase();
  if (format === "csv" || format === "parquet") return format;
  throw badData(path, "its extension is neither .csv nor .parquet.", "Use one of these formats.");
}
