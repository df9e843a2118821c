/** Collects garbage now, for tests that measure the heap or that check that collection is harmless. */

import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";

setFlagsFromString("--expose-gc");

export const collectGarbage: () => void = runInNewContext("gc");

/** The JS heap in use after a full collection, in bytes. */
export function heapAfterCollection(): number {
  collectGarbage();
  collectGarbage();
  return process.memoryUsage().heapUsed;
}
