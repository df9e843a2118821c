/** Holds a call to being refused: by a HoldfastError with this code, whose message says this. */

import assert from "node:assert/strict";
import { type ErrorCode, HoldfastError } from "holdfast";

export function refuses(code: ErrorCode, call: () => unknown, message = /./): void {
  assert.throws(call, isRefusal(code, message));
}

/** The same of a promise. */
export async function refusesLater(code: ErrorCode, promise: Promise<unknown>, message = /./): Promise<void> {
  await assert.rejects(promise, isRefusal(code, message));
}

function isRefusal(code: ErrorCode, message: RegExp): (error: unknown) => true {
  return (error) => {
    assert.ok(error instanceof HoldfastError, String(error));
    assert.equal(error.code, code, error.message);
    assert.match(error.message, message);
    return true;
  };
}
