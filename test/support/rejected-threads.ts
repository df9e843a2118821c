/** A system that rejects threads, for tests: `new Worker` throws as Node does if the kernel rejects it. */

import { syncBuiltinESMExports } from "node:module";
import threads, { type Worker } from "node:worker_threads";

/** Runs a function while every thread after the first few is rejected. Returns its result and the warnings. */
export async function withoutThreads<Result>(
  body: () => Result | Promise<Result>,
  allowed = 0,
): Promise<{ readonly result: Result; readonly warnings: readonly string[] }> {
  const warnings: string[] = [];
  const note = (warning: Error & { readonly code?: string }): void =>
    void warnings.push(`${warning.code} ${warning.message}`);
  const { Worker: Real } = threads;
  let left = allowed;
  class Rejected extends Real {
    constructor(...args: ConstructorParameters<typeof Worker>) {
      if (left-- <= 0) throw Object.assign(new Error("EAGAIN"), { code: "ERR_WORKER_INIT_FAILED" });
      super(...args);
    }
  }
  process.on("warning", note);
  threads.Worker = Rejected;
  syncBuiltinESMExports();
  try {
    const result = await body();
    // Node emits warnings on the next tick.
    await new Promise(setImmediate);
    return { result, warnings };
  } finally {
    threads.Worker = Real;
    syncBuiltinESMExports();
    process.off("warning", note);
  }
}
