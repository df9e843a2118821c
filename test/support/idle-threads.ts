/** Threads that never run, for tests of code that starts watchdogs which have nothing to do with the test. */

import { EventEmitter } from "node:events";
import { syncBuiltinESMExports } from "node:module";
import threads from "node:worker_threads";

/** Has what the code that starts a thread calls. */
class IdleThread extends EventEmitter {
  unref(): void {}
  /** The message says that the thread is no longer needed. */
  postMessage(): void {
    this.emit("exit", 0);
  }
}

/** Runs a function that starts threads and doesn't wait for them, to the end of its promise. None of them runs. */
export function withIdleThreads<Result>(run: () => Result): Result {
  const { Worker: Real } = threads;
  const use = (Worker: unknown): void => {
    Object.assign(threads, { Worker });
    syncBuiltinESMExports();
  };
  use(IdleThread);
  let result: Result | undefined;
  try {
    result = run();
  } finally {
    if (!(result instanceof Promise)) use(Real);
  }
  return result instanceof Promise ? (result.finally(() => use(Real)) as Result) : result;
}
