/**
 * Starts worker threads, and lets them load native code. A system may reject threads (`pids.max`, `ulimit -u`). The caller then
 * continues without the thread.
 */

import { getEnvironmentData, isMainThread, setEnvironmentData, Worker } from "node:worker_threads";

/**
 * Starts a thread that does not keep the process alive, or gives the reason why there is none. The thread does
 * not inherit the program's Node flags, such as loaders or `--input-type`.
 */
export function startThread(script: URL, workerData: unknown): Worker | Error {
  shareLoads();
  try {
    const worker = new Worker(script, { workerData, execArgv: [] });
    worker.unref();
    return worker;
  } catch (error) {
    return error instanceof Error ? error : new Error(String(error));
  }
}

/** What helps where threads are rejected. */
export const threadAdvice = "Allow the process more threads (ulimit -u, or pids.max of its container)";

/** Of two cells that all threads of a process share: how many load native code now, and whether the process is about to end. */
const loadsKey = "holdfast: threads that load native code";
const at = { count: 0, isEnding: 1 } as const;
/** How long the end of the process waits for them, in milliseconds. */
const patienceMs = 2000;

/**
 * Loads native code in a thread. A process that ends meanwhile waits, because a load that is cut off aborts it. Once the process
 * is about to end, nothing is loaded any more, and the promise stays open until the thread is gone.
 */
export async function loadNative<T>(load: () => Promise<T>): Promise<T> {
  const loads = getEnvironmentData(loadsKey) as Int32Array | undefined;
  if (!loads) return load();
  Atomics.add(loads, at.count, 1);
  try {
    if (Atomics.load(loads, at.isEnding) === 0) return await load();
  } finally {
    Atomics.sub(loads, at.count, 1);
    Atomics.notify(loads, at.count);
  }
  return new Promise(() => undefined);
}

function shareLoads(): void {
  if (!isMainThread || getEnvironmentData(loadsKey) !== undefined) return;
  const loads = new Int32Array(new SharedArrayBuffer(8));
  setEnvironmentData(loadsKey, loads);
  process.on("exit", () => {
    Atomics.store(loads, at.isEnding, 1);
    const endMs = performance.now() + patienceMs;
    for (;;) {
      const count = Atomics.load(loads, at.count);
      const leftMs = endMs - performance.now();
      if (count === 0 || leftMs <= 0) return;
      Atomics.wait(loads, at.count, count, leftMs);
    }
  });
}
