/** Files of bars for tests: a temporary folder, and files that must be rejected. */

import assert from "node:assert/strict";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type ErrorCode, HoldfastError } from "holdfast";

export async function inFolder<Result>(use: (folder: string) => Promise<Result>): Promise<Result> {
  const folder = await mkdtemp(join(tmpdir(), "holdfast-bars-"));
  try {
    return await use(folder);
  } finally {
    await rm(folder, { recursive: true });
  }
}

/** Writes a file with this name, passes its path to a function, and removes it. */
export function withFile<Result>(
  name: string,
  content: string | Uint8Array,
  use: (path: string) => Promise<Result>,
): Promise<Result> {
  return inFolder(async (folder) => {
    const path = join(folder, name);
    await writeFile(path, content);
    return await use(path);
  });
}

/** Asserts that a promise is rejected by a HoldfastError with this code, whose message matches. */
export async function rejectsLater(code: ErrorCode, call: Promise<unknown>, message: RegExp): Promise<void> {
  await assert.rejects(call, (error) => {
    assert.ok(error instanceof HoldfastError, String(error));
    assert.equal(error.code, code, error.message);
    assert.match(error.message, message);
    return true;
  });
}
