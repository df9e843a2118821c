/** Writes bars to a file atomically: to a temporary file, which is then renamed. */

import { randomUUID } from "node:crypto";
import { type FileHandle, open, rename, rm } from "node:fs/promises";
import type { SchemaElement } from "hyparquet";
import type { ByteWriter } from "hyparquet-writer";
import { wrapFault } from "../../data/index.js";
import { HoldfastError } from "../../errors/index.js";
import { type Bars, barColumns } from "./bars.js";
import { findFault } from "./columns.js";
import { formatOf } from "./read.js";

const rowsPerChunk = 8192;
const rowsPerGroup = 65_536;

/**
 * Writes bars to a CSV or a Parquet file, depending on the extension. Reading them back gives the same bits.
 *
 * @example
 * ```ts
 * import { mkdtempSync } from "node:fs";
 * import { tmpdir } from "node:os";
 * import { join } from "node:path";
 * import { crossasset } from "holdfast";
 * const path = join(mkdtempSync(join(tmpdir(), "bars-")), "market.csv");
 * await crossasset.writeBars(path, crossasset.generateBars({ bars: 100, seed: 1 }));
 * console.log((await crossasset.readBars(path)).close.length); // → 100
 * ```
 */
export async function writeBars(path: string, bars: Bars): Promise<void> {
  const format = formatOf(path);
  requireBars(bars);
  const temporary = `${path}.${randomUUID()}.part`;
  try {
    const handle = await open(temporary, "wx");
    try {
      await (format === "csv" ? writeCsv(handle, bars) : writeParquet(handle, bars));
      await handle.sync();
    } finally {
      await handle.close();
    }
    await rename(temporary, path);
  } catch (error) {
    await rm(temporary, { force: true }).catch(() => undefined);
    const advice = "Check the path, the permissions and the free disk space.";
    throw wrapFault(path, "it can't be written", error, advice);
  }
}

async function writeCsv(handle: FileHandle, bars: Bars): Promise<void> {
  await handle.appendFile(`${barColumns.join(",")}\n`);
  const { time, open, high, low, close, volume } = bars;
  for (let start = 0; start < time.length; start += rowsPerChunk) {
    const lines: string[] = [];
    for (let row = start; row < Math.min(start + rowsPerChunk, time.length); row++) {
      const date = new Date(time[row] ?? 0).toISOString().replace(".000Z", "Z");
      lines.push(`${date},${open[row]},${high[row]},${low[row]},${close[row]},${volume[row]}\n`);
    }
    await handle.appendFile(lines.join(""));
  }
}

const schema: SchemaElement[] = [
  { name: "bars", num_children: barColumns.length },
  { name: "time", type: "INT64", converted_type: "TIMESTAMP_MILLIS", repetition_type: "REQUIRED" },
  ...barColumns
    .filter((name) => name !== "time")
    .map((name): SchemaElement => ({ name, type: "DOUBLE", repetition_type: "REQUIRED" })),
];

async function writeParquet(handle: FileHandle, bars: Bars): Promise<void> {
  // Loaded at first use: it has more than a hundred modules, and most programs write no bars.
  const { ByteWriter, ParquetWriter } = await import("hyparquet-writer");
  const writer = new ByteWriter();
  const parquet = new ParquetWriter({ writer, schema });
  for (let start = 0; start < bars.time.length; start += rowsPerGroup) {
    const columnData = barColumns.map((name) => {
      const data = bars[name].subarray(start, start + rowsPerGroup);
      return { name, data: name === "time" ? BigInt64Array.from(data, BigInt) : data };
    });
    await parquet.write({ columnData, rowGroupSize: rowsPerGroup });
    await drain(writer, handle);
  }
  await parquet.finish();
  await drain(writer, handle);
}

/** Moves the writer's bytes to the file. The writer keeps counting its offsets. */
async function drain(writer: ByteWriter, handle: FileHandle): Promise<void> {
  await handle.appendFile(writer.getBytes());
  writer.index = 0;
}

/** Throws if the bars could not be read back. */
function requireBars(bars: Bars): void {
  const count = bars.time.length;
  for (const column of barColumns) {
    if (bars[column].length !== count || count === 0)
      throw badArgument(`${bars[column].length} values of ${column} for ${count} bars`);
  }
  for (let at = 0; at < count; at++) {
    const fault = findFault(bars, at);
    if (fault !== undefined) throw badArgument(`bar ${at} ${fault.describe(String(bars[fault.column][at]))}`);
    if (!Number.isInteger(bars.time[at])) throw badArgument(`bar ${at} is not at a whole millisecond`);
  }
}

function badArgument(problem: string): HoldfastError {
  return new HoldfastError("BAD_ARGUMENT", `These bars can't be written: ${problem}. Correct them first.`);
}
