/** Inputs that once did harm, and the seeds of the fuzzers: each is read or refused by name, within limits of memory and time. */

import assert from "node:assert/strict";
import test from "node:test";
import { corpusOf, fuzz } from "./support/fuzz/run-fuzz.js";
import { fuzzTargetNames } from "./support/fuzz/target-names.js";

test("no input of the corpus does harm", async (t) => {
  const { report, failure } = await fuzz(fuzzTargetNames, { seed: 0, durationMs: 0 });
  assert.equal(failure, undefined);
  const kept = fuzzTargetNames.reduce((sum, target) => sum + corpusOf(target).length, 0);
  assert.ok((report?.inputs ?? 0) >= kept + 40, `${report?.inputs} inputs`);
  t.diagnostic(`${report?.inputs} inputs, ${report?.refused} refused`);
});
