/** Catches rejections, for tests in which the state after an error matters as much as the error. */

import { HoldfastError } from "holdfast";

/** Makes the call and returns the HoldfastError, if any; other errors propagate. */
export function rejectionOf(call: () => unknown): HoldfastError | undefined {
  try {
    call();
    return undefined;
  } catch (error) {
    if (error instanceof HoldfastError) return error;
    throw error;
  }
}
