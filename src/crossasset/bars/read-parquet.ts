/** Reads bars from a Parquet file, one row group at a time: what is held is the columns and one group. */

import { type FileHandle, open } from "node:fs/promises";
import { type AsyncBuffer, parquetMetadataAsync, parquetScan, parquetSchema } from "hyparquet";
import { compressors } from "hyparquet-compressors";
import { type Bars, barColumns } from "./bars.js";
import { BarColumns, placeColumns } from "./columns.js";
import { badBars, wrapFault } from "./refusal.js";

export async function readParquet(path: string): Promise<Bars> {
  try {
    const handle = await open(path);
    try {
      return await readGroups(path, await bufferOf(handle));
    } finally {
      await handle.close();
    }
  } catch (error) {
    // The parser throws whatever a wrong byte leads it to: errors of range and type as well as its own.
    const advice = "The file is truncated, altered or no Parquet: make or fetch it again.";
    throw wrapFault(path, "it can't be read as Parquet", error, advice);
  }
}

async function readGroups(path: string, file: AsyncBuffer): Promise<Bars> {
  const metadata = await parquetMetadataAsync(file);
  const header = parquetSchema(metadata).children.map((child) => child.element.name);
  const names = placeColumns(path, header).map((place) => header[place] ?? "");
  const scan = await parquetScan({ file, metadata, columns: names, compressors });
  const columns = new BarColumns(path);
  const cells = new Array<unknown>(barColumns.length);
  for (const { rowStart, rowEnd } of scan.ranges) {
    const group: ArrayLike<unknown>[] = [];
    for (const column of names) group.push(await scan.readColumn({ column, rowStart, rowEnd }));
    group.forEach((data, column) => {
      if (data.length !== rowEnd - rowStart)
        throw shortGroup(path, barColumns[column], data.length, rowEnd - rowStart);
    });
    for (let row = 0; row < rowEnd - rowStart; row++) {
      for (let column = 0; column < cells.length; column++) cells[column] = group[column]?.[row];
      columns.add(cells);
    }
  }
  return columns.finish();
}

function shortGroup(path: string, column: string | undefined, found: number, rows: number): Error {
  return badBars(
    path,
    `a row group of ${rows} rows has ${found} values of ${column}.`,
    "The file is altered: make or fetch it again.",
    { found, rows },
  );
}

async function bufferOf(handle: FileHandle): Promise<AsyncBuffer> {
  const { size } = await handle.stat();
  return {
    byteLength: size,
    async slice(start, end = size) {
      if (!(start >= 0 && start <= end && end <= size))
        throw new RangeError(`bytes ${start} to ${end} of a file of ${size}`);
      const bytes = new Uint8Array(end - start);
      for (let done = 0; done < bytes.length; ) {
        const { bytesRead } = await handle.read(bytes, done, bytes.length - done, start + done);
        if (bytesRead === 0)
          throw new RangeError(`the file shrank to ${start + done} bytes while it was read`);
        done += bytesRead;
      }
      return bytes.buffer;
    },
  };
}
