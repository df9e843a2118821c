/** Whether a signal ends a training, on all ranks at once. */

import type { DataParallel } from "../../parallel/index.js";

/** True if a signal has ended the training. Ranks hear signals at different times and must end together, so all call this together. */
export function isStopped(signal: AbortSignal | undefined, parallel: DataParallel | undefined): boolean {
  const isAborted = signal?.aborted ?? false;
  if (!parallel || !signal) return isAborted;
  return parallel.world.exchange("whether a signal ends the training", isAborted).includes(true);
}
