/** The worker of `readParquet`: decodes one file, posts the columns or the error, and ends. */

import { parentPort, workerData } from "node:worker_threads";
import { HoldfastError } from "../../../errors/index.js";
import { barColumns } from "../bars.js";
import { decodeParquet } from "./decode.js";
import type { DecodeMessage, DecodeStart } from "./decode-in-thread.js";

const { path, pages } = workerData as DecodeStart;
const count = new Int32Array(pages);

const post = (message: DecodeMessage, transfer: readonly ArrayBuffer[] = []): void =>
  parentPort?.postMessage(message, transfer);

try {
  const bars = decodeParquet(path, () => Atomics.add(count, 0, 1));
  const buffers = barColumns
    .map((column) => bars[column].buffer)
    .filter((buffer) => buffer instanceof ArrayBuffer);
  post({ bars }, buffers);
} catch (error) {
  if (!(error instanceof HoldfastError)) throw error;
  const { code, message, numbers } = error;
  post({ code, message, numbers });
}
