/** The exit codes are distinct and stable. */

import assert from "node:assert/strict";
import { it } from "node:test";
import { exitCodes } from "./exit-codes.js";

it("no two exits share a code, and none can be taken for a shell's or a signal's", () => {
  const codes = Object.values(exitCodes).map(({ code }) => code);
  assert.equal(new Set(codes).size, codes.length);
  // 126 and 127 are the shell's own; 128 + n is the end by signal n.
  assert.ok(codes.every((code) => code >= 0 && code < 126));
});
