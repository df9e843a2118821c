/**
 * Memory for trials, apart from the step arena: the arena keeps what it once needed, and a trial is over before the
 * step runs.
 */

import { type ErrorCode, HoldfastError } from "../../errors/index.js";
import type { Runtime, Storage } from "../../runtime/index.js";

const memoryErrors: ReadonlySet<ErrorCode> = new Set(["ARENA_FULL", "OUT_OF_BUDGET", "OUT_OF_MEMORY"]);

/** A byte that, repeated, is a small number in every dtype. */
const smallNumber = 0x3c;

export interface TrialMemory {
  /** All of it. Views of it need not be dropped. */
  readonly storage: Storage;
  free(): void;
}

/** Memory filled with small numbers. Undefined if there is not enough: lack of memory for tuning is no error. */
export function allocateTrialMemory(runtime: Runtime, size: number, name: string): TrialMemory | undefined {
  const { persistent } = runtime;
  const place = () => persistent.place("autotuning", name, [{ name, size }]);
  let region: ReturnType<typeof place>;
  try {
    region = place();
  } catch (error) {
    if (error instanceof HoldfastError && memoryErrors.has(error.code)) return undefined;
    throw error;
  }
  const storage = region.whole;
  runtime.fill(storage, smallNumber);
  return {
    storage,
    free() {
      runtime.synchronize();
      persistent.release(region);
    },
  };
}
