/**
 * A minute of fuzzing: files, run folders and requests with random changes. TEST_FUZZ_SECONDS sets another
 * duration, and TEST_FUZZ_SEED repeats a run. Harmful inputs are kept, and belong in
 * test/fixtures/fuzz-corpus/ once their fault is fixed.
 */

import assert from "node:assert/strict";
import test from "node:test";
import { fuzz } from "./support/fuzz/run-fuzz.js";
import { fuzzTargetNames } from "./support/fuzz/target-names.js";

const seconds = Number(process.env["TEST_FUZZ_SECONDS"] ?? 60);
const seed = Number(process.env["TEST_FUZZ_SEED"] ?? Date.now() % 2 ** 31);
/** In proportion to the number of bugs found in them. */
const shares = { parquet: 0.3, runs: 0.2, models: 0.2, http: 0.1, safetensors: 0.1, csv: 0.1 } as const;

for (const target of fuzzTargetNames) {
  test(`mutants are read or rejected with an error code: ${target}`, async (t) => {
    const { report, failure } = await fuzz([target], { seed, durationMs: 1000 * seconds * shares[target] });
    t.diagnostic(`seed ${seed}: ${report?.inputs} inputs, ${report?.rejected} rejected`);
    assert.equal(failure, undefined);
  });
}
