/** Reads bars from a Parquet file. A worker thread decodes it: files are untrusted, and a worker can be terminated. */

import { stat } from "node:fs/promises";
import type { Bars } from "./bars.js";
import { type DecodeLimits, decodeAside } from "./parquet/decode-aside.js";
import { wrapFault } from "./rejection.js";

export async function readParquet(path: string, limits?: DecodeLimits): Promise<Bars> {
  const { size } = await stat(path).catch((error: unknown) => {
    throw wrapFault(path, "it can't be read", error, "Check the path and the permissions.");
  });
  return await decodeAside(path, size, limits);
}
