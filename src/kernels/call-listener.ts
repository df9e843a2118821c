/** Hears of kernels as they are called, before anything is printed or launched: what a traced step is made of. */

import type { Runtime } from "../runtime/index.js";
import type { AttentionBackwardProblem, AttentionProblem } from "./attention/problem.js";
import type { GemmInputDtype, GemmProblem } from "./gemm/desc.js";
import type { ColumnLaunch, RowLaunch } from "./launch.js";

/** What is told is not launched: that is up to the listener. */
export interface CallListener {
  rows(launch: RowLaunch): void;
  columns(launch: ColumnLaunch): void;
  product(problem: GemmProblem<GemmInputDtype>, op: string): void;
  attention(problem: AttentionProblem, op: string): void;
  attentionBackward(problem: AttentionBackwardProblem, op: string): void;
}

const listeners = new WeakMap<Runtime, CallListener>();

/** Who listens to a runtime's calls now. */
export function callListenerOf(runtime: Runtime): CallListener | undefined {
  return listeners.get(runtime);
}

/** Runs a function whose calls of kernels are told to a listener. */
export function listenToCalls<T>(runtime: Runtime, listener: CallListener, body: () => T): T {
  const before = listeners.get(runtime);
  listeners.set(runtime, listener);
  try {
    return body();
  } finally {
    if (before) listeners.set(runtime, before);
    else listeners.delete(runtime);
  }
}
