/**
 * Starts worker threads, and lets them load native code. A system may reject threads (`pids.max`, `ulimit -u`); the
 * caller then continues without the thread.
 */

import {
  getEnvironmentData,
  isMainThread,
  setEnvironmentData,
  type TransferListItem,
  Worker,
} from "node:worker_threads";

/**
 * Starts a thread that does not keep the process alive, or returns the error. The thread does not inherit the program's
 * Node flags, such as loaders or `--input-type`. `transferList`: ports and buffers in `workerData` that move to it.
 */
export function startThread(
  script: URL,
  workerData: unknown,
  transferList: readonly TransferListItem[] = [],
): Worker | Error {
  shareLoads();
  try {
    const worker = new Worker(script, { workerData, execArgv: [], transferList: [...transferList] });
    worker.unref();
    return worker;
  } catch (error) {
    return error instanceof Error ? error : new Error(String(error));
  }
}

/** Advice for when the system rejects threads. */
export const threadAdvice = "Allow the process more threads (ulimit -u, or pids.max of its container)";

/**
 * Key of two cells shared by all threads of a process: the number of threads loading native code, and whether the
 * process is exiting.
 */
const loadsKey = "holdfast: threads that load native code";
const cell = { count: 0, isEnding: 1 } as const;
/** How long process exit waits for them, in milliseconds. */
const timeoutMs = 2000;

/**
 * Loads native code in a thread. An exiting process waits for it, because an interrupted load aborts the process. Once
 * the process is exiting, nothing more is loaded, and the promise stays pending.
 */
export async function loadNative<T>(load: () => Promise<T>): Promise<T> {
  const loads = getEnvironmentData(loadsKey) as Int32Array | undefined;
  if (!loads) return load();
  Atomics.add(loads, cell.count, 1);
  try {
    if (Atomics.load(loads, cell.isEnding) === 0) return await load();
  } finally {
    Atomics.sub(loads, cell.count, 1);
    Atomics.notify(loads, cell.count);
  }
  return new Promise(() => undefined);
}

function shareLoads(): void {
  if (!isMainThread || getEnvironmentData(loadsKey) !== undefined) return;
  const loads = new Int32Array(new SharedArrayBuffer(8));
  setEnvironmentData(loadsKey, loads);
  process.on("exit", () => {
    Atomics.store(loads, cell.isEnding, 1);
    const endMs = performance.now() + timeoutMs;
    for (;;) {
      const count = Atomics.load(loads, cell.count);
      const remainingMs = endMs - performance.now();
      if (count === 0 || remainingMs <= 0) return;
      Atomics.wait(loads, cell.count, count, remainingMs);
    }
  });
}
