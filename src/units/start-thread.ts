/** Starts worker threads. A system may refuse them (`pids.max`, `ulimit -u`), which is no reason for anybody to fail. */

import { Worker } from "node:worker_threads";

/**
 * Starts a thread that does not keep the process alive, or gives the reason why there is none. It has not the program's own
 * flags: a loader, an inspector or `--input-type` has no business there.
 */
export function startThread(script: URL, workerData: unknown): Worker | Error {
  try {
    const worker = new Worker(script, { workerData, execArgv: [] });
    worker.unref();
    return worker;
  } catch (error) {
    return error instanceof Error ? error : new Error(String(error));
  }
}

/** What helps where threads are refused. */
export const threadAdvice = "Allow the process more threads: see ulimit -u, and pids.max of its container";
