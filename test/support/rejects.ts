/** Asserts that a call is rejected by a HoldfastError with this code, whose message matches. */

import assert from "node:assert/strict";
import { type ErrorCode, HoldfastError } from "holdfast";

export function rejects(code: ErrorCode, call: () => unknown, message = /./): void {
  assert.throws(call, isRejection(code, message));
}

/** The same for a promise. */
export async function rejectsLater(code: ErrorCode, promise: Promise<unknown>, message = /./): Promise<void> {
  await assert.rejects(promise, isRejection(code, message));
}

function isRejection(code: ErrorCode, message: RegExp): (error: unknown) => true {
  return (error) => {
    assert.ok(error instanceof HoldfastError, String(error));
    assert.equal(error.code, code, error.message);
    assert.match(error.message, message);
    return true;
  };
}
