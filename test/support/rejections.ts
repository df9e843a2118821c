/** Looks at rejections: which error a call ends with, where the state after it matters as much as the error. */

import { HoldfastError } from "holdfast";

/** Makes the call and tells the error that it was rejected with, if it was; other errors are no rejections and pass. */
export function rejectionOf(call: () => unknown): HoldfastError | undefined {
  try {
    call();
    return undefined;
  } catch (error) {
    if (error instanceof HoldfastError) return error;
    throw error;
  }
}
