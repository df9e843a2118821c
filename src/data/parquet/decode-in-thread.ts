/**
 * Decodes a Parquet file in a worker thread with a memory limit. A hostile file can make a decoder run for hours or take all memory;
 * the thread can be terminated without ending the process.
 */

import { getHeapStatistics } from "node:v8";
import { Worker } from "node:worker_threads";
import { type ErrorCode, type ErrorNumbers, HoldfastError } from "../../errors/index.js";
import { formatBytes, formatDuration, MiB, threadAdvice } from "../../units/index.js";
import { badData, wrapFault } from "../rejection.js";
import type { ParquetColumn } from "./column-values.js";
import type { SelectColumns } from "./decode.js";
import type { ValueLimits } from "./limits.js";

export interface DecodeStart {
  readonly path: string;
  /** The counter of decoded pages. */
  readonly pages: SharedArrayBuffer;
  readonly limits: ValueLimits;
}

/** A message of the thread: the names of the columns; after a reply with positions, the columns; or an error. */
export type DecodeMessage =
  | { readonly names: readonly string[] }
  | { readonly columns: readonly ParquetColumn[] }
  | { readonly code: ErrorCode; readonly message: string; readonly numbers: ErrorNumbers };

export interface DecodeLimits extends ValueLimits {
  /** Max. time per page, in milliseconds; default: a minute. A page of 32 M values takes a few seconds. */
  readonly pageMs?: number;
  /** Bytes of the thread's JavaScript heap; default: by the file's size. */
  readonly heapBytes?: number;
  /** The program of the thread; default: `decode-thread.ts`. */
  readonly program?: URL;
}

/** Times are objects of about 100 bytes; a row of the most compact files has 10 bytes. */
const heapPerByte = 16;
const minHeap = 512 * MiB;
/** Progress checks per `pageMs`. */
const checks = 8;

export function decodeInThread(
  path: string,
  fileBytes: number,
  select: SelectColumns,
  limits: DecodeLimits,
): Promise<readonly ParquetColumn[]> {
  const { pageMs = 60_000, program = new URL("./decode-thread.js", import.meta.url) } = limits;
  const heapBytes = limits.heapBytes ?? heapFor(fileBytes);
  const pages = new SharedArrayBuffer(4);
  const count = new Int32Array(pages);
  return new Promise((resolve, reject) => {
    let worker: Worker;
    try {
      const { valueBytes, maxBytes } = limits;
      const workerData: DecodeStart = { path, pages, limits: { valueBytes, maxBytes } };
      const resourceLimits = { maxOldGenerationSizeMb: Math.ceil(heapBytes / MiB) };
      worker = new Worker(program, { workerData, execArgv: [], resourceLimits });
    } catch (error) {
      reject(noThread(path, error));
      return;
    }
    // Counts checks instead of time, because a stopped process decodes nothing.
    let [lastCount, idleChecks] = [0, 0];
    const timer = setInterval(() => {
      const pageCount = Atomics.load(count, 0);
      idleChecks = pageCount === lastCount ? idleChecks + 1 : 0;
      lastCount = pageCount;
      if (idleChecks >= checks) end(() => reject(tooSlow(path, pageMs)));
    }, pageMs / checks);
    const end = (settle: () => void): void => {
      clearInterval(timer);
      worker.removeAllListeners();
      // Later errors are irrelevant, but must not be thrown.
      worker.on("error", () => undefined);
      void worker.terminate().finally(settle);
    };
    worker.on("message", (message: DecodeMessage) => {
      if ("names" in message) {
        try {
          worker.postMessage(select(message.names));
        } catch (error) {
          end(() => reject(error));
        }
        return;
      }
      end(() => {
        if ("columns" in message) resolve(message.columns);
        else reject(new HoldfastError(message.code, message.message, { numbers: message.numbers }));
      });
    });
    worker.once("error", (error) => end(() => reject(decoderError(path, heapBytes, error))));
    worker.once("exit", (code) =>
      end(() => reject(badData(path, `its decoder ended with exit code ${code}.`, rewriteAdvice))),
    );
  });
}

const rewriteAdvice = "Write or download the file again.";

/** At most the heap limit of this thread. */
function heapFor(fileBytes: number): number {
  return Math.min(minHeap + heapPerByte * fileBytes, getHeapStatistics().heap_size_limit);
}

function decoderError(path: string, heapBytes: number, error: unknown): HoldfastError {
  const code = error instanceof Error && "code" in error ? error.code : undefined;
  if (code === "ERR_WORKER_OUT_OF_MEMORY") {
    return badData(
      path,
      `decoding needs more than ${formatBytes(heapBytes)} of memory.`,
      "If the file is valid, write it with row groups of 65536 rows or as CSV, or raise the limit with NODE_OPTIONS=--max-old-space-size=8192.",
      { heapBytes },
      error,
    );
  }
  if (code === "ERR_WORKER_INIT_FAILED") return noThread(path, error);
  return wrapFault(path, "its decoder failed", error, rewriteAdvice);
}

function tooSlow(path: string, pageMs: number): HoldfastError {
  return badData(path, `one of its pages was not decoded in ${formatDuration(pageMs)}.`, rewriteAdvice, {
    pageMs,
  });
}

function noThread(path: string, cause: unknown): HoldfastError {
  const why = cause instanceof Error ? cause.message : String(cause);
  return new HoldfastError(
    "UNSUPPORTED",
    `${path} can't be decoded: no thread could be started (${why}). ${threadAdvice}, or use CSV.`,
    { numbers: { path }, cause },
  );
}
