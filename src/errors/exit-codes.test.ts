/** The exit codes are distinct and stable, and show correctly whether a retry makes sense. */

import assert from "node:assert/strict";
import { it } from "node:test";
import { exitCodes, toExitCode } from "./exit-codes.js";
import { HoldfastError } from "./holdfast-error.js";

it("no two exits share a code, and none is a code of a shell or a signal", () => {
  const codes = Object.values(exitCodes).map(({ code }) => code);
  assert.equal(new Set(codes).size, codes.length);
  // 126 and 127 are the shell's codes; 128 + n is the end by signal n.
  assert.ok(codes.every((code) => code >= 0 && code < 126));
});

it("an error that every retry would repeat has a separate exit code", () => {
  for (const code of [
    "BAD_SETTING",
    "BAD_ARGUMENT",
    "BAD_FILE",
    "BAD_STATE",
    "NOT_FINITE",
    "NO_CUDA",
  ] as const)
    assert.equal(toExitCode(new HoldfastError(code, "x")), exitCodes.rejected.code, code);
  assert.equal(toExitCode(new HoldfastError("DIVERGED", "x")), exitCodes.diverged.code);
  assert.equal(exitCodes.diverged.retry, "fails again");
  for (const code of ["OUT_OF_MEMORY", "OUT_OF_BUDGET", "DRIVER_FAILED", "RUN_LOCKED", "RUN_LOST"] as const)
    assert.equal(toExitCode(new HoldfastError(code, "x")), exitCodes.failed.code, code);
  assert.equal(toExitCode(new TypeError("a fault of ours")), exitCodes.failed.code);
});

it("a file error is worth a retry only if the system's reason can pass, at any depth of causes", () => {
  const failing = (reason: string): HoldfastError => {
    const cause = Object.assign(new Error(reason), { code: reason });
    const inner = new HoldfastError("BAD_FILE", "can't be written", { cause });
    return new HoldfastError("BAD_FILE", "is rejected", { cause: inner });
  };
  for (const reason of ["ENOSPC", "EIO", "EROFS", "EMFILE"])
    assert.equal(toExitCode(failing(reason)), exitCodes.failed.code, reason);
  for (const reason of ["ENOENT", "ENOTDIR", "EACCES"])
    assert.equal(toExitCode(failing(reason)), exitCodes.rejected.code, reason);
});
