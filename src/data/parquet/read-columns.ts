/** Reads columns of a Parquet file. A worker thread decodes it: files are untrusted, and a worker can be terminated. */

import { stat } from "node:fs/promises";
import { wrapFault } from "../rejection.js";
import type { ParquetColumn } from "./column-values.js";
import type { SelectColumns } from "./decode.js";
import { type DecodeLimits, decodeInThread } from "./decode-in-thread.js";

export interface ParquetReadLimits extends DecodeLimits {
  /** False decodes on this thread, which takes less time for a small file that is trusted. Default: true. */
  readonly inThread?: boolean;
}

export async function readParquetColumns(
  path: string,
  select: SelectColumns,
  { inThread = true, ...limits }: ParquetReadLimits,
): Promise<readonly ParquetColumn[]> {
  const { size } = await stat(path).catch((error: unknown) => {
    throw wrapFault(path, "it can't be read", error, "Check the path and the permissions.");
  });
  if (inThread) return await decodeInThread(path, size, select, limits);
  // Loaded at first use: it loads hyparquet.
  const { decodeParquet } = await import("./decode.js");
  return decodeParquet(path, select, limits);
}
