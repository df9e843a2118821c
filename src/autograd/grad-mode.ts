/** Whether ops are recorded for backward. One switch for the process, for functions that return before anything else runs. */

import { HoldfastError } from "../errors/index.js";

let depth = 0;

export function isRecording(): boolean {
  return depth === 0;
}

/**
 * Runs a function without recording anything for backward: for evaluation, and for writing to weights.
 *
 * @example
 * ```ts
 * import { device, noGrad, tensor } from "holdfast";
 * const cpu = await device("cpu");
 * const w = tensor([1, 2], { requiresGrad: true });
 * console.log(w.mul(2).requiresGrad, noGrad(() => w.mul(2)).requiresGrad); // → true false
 * cpu.close();
 * ```
 */
export function noGrad<T>(body: () => T): T {
  depth += 1;
  try {
    const result = body();
    if (!(result instanceof Promise)) return result;
    result.catch(() => undefined);
    throw new HoldfastError(
      "BAD_ARGUMENT",
      "noGrad was given an async function: recording would come back on before it has ended. Await outside of it.",
    );
  } finally {
    depth -= 1;
  }
}
