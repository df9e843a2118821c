/**
 * The worker of `readParquet`: opens one file, posts the names of its columns, waits for the positions of those to read, and posts the
 * columns. An error ends it.
 */

import { parentPort, workerData } from "node:worker_threads";
import { HoldfastError } from "../../errors/index.js";
import { ParquetFile } from "./decode.js";
import type { DecodeMessage, DecodeStart } from "./decode-in-thread.js";

const { path, pages, limits } = workerData as DecodeStart;
const count = new Int32Array(pages);

const post = (message: DecodeMessage, transfer: readonly ArrayBuffer[] = []): void =>
  parentPort?.postMessage(message, transfer);

function reporting(body: () => void): void {
  try {
    body();
  } catch (error) {
    if (!(error instanceof HoldfastError)) throw error;
    const { code, message, numbers } = error;
    post({ code, message, numbers });
  }
}

reporting(() => {
  const file = new ParquetFile(path);
  parentPort?.once("message", (indices: readonly number[]) =>
    reporting(() => {
      const columns = file.read(indices, limits, () => Atomics.add(count, 0, 1));
      const buffers = columns.flatMap(({ values, missing }) => [
        ...("buffer" in values && values.buffer instanceof ArrayBuffer ? [values.buffer] : []),
        ...(missing?.buffer instanceof ArrayBuffer ? [missing.buffer] : []),
      ]);
      post({ columns }, buffers);
    }),
  );
  post({ names: file.names });
});
