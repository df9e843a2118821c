/** Reads a file of bars, by the way its name ends. */

import { stat } from "node:fs/promises";
import type { Bars } from "./bars.js";
import { readCsv } from "./read-csv.js";
import { readParquet } from "./read-parquet.js";
import { badBars, wrapFault } from "./rejection.js";

export type BarsFormat = "csv" | "parquet";

/**
 * Reads bars from a CSV or a Parquet file. Columns may stand in any order, with capitals or without; further ones are
 * ignored. Times are ISO 8601 (UTC where no zone is given), or numbers: seconds below 1e11, else milliseconds. Whole numbers from
 * 19000101 to 21991231 are days, as in 20200131. The first row that is no bar is rejected with its number, the header not counted.
 * Parquet is decoded in a thread of its own, within limits of memory and time.
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
    throw wrapFault(path, "there is no such file, or it can't be reached", error, "Check the path.");
  });
  // A folder has no bytes, and a pipe or a device may never end.
  if (!stats.isFile()) throw badBars(path, "it is a folder, a pipe or a device.", "Give a file.");
  if (stats.size === 0) throw badBars(path, "it is empty.", "Give a file with bars.");
  return format === "csv" ? await readCsv(path) : await readParquet(path);
}

/** The format that a path's end names. */
export function formatOf(path: string): BarsFormat {
  const [, end] = /\.(csv|parquet)$/i.exec(path) ?? [];
  const format = end?.toLowerCase();
  if (format === "csv" || format === "parquet") return format;
  throw badBars(
    path,
    "its name ends neither in .csv nor in .parquet.",
    "Give a file of one of the two formats.",
  );
}
