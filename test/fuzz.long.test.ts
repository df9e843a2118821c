/**
 * A minute of fuzzing: files, run folders and requests changed at random. TEST_FUZZ_SECONDS sets another duration, and TEST_FUZZ_SEED
 * repeats a run. What does harm is kept, and belongs into test/fixtures/fuzz-corpus/ once its fault is mended.
 */

import assert from "node:assert/strict";
import test from "node:test";
import { fuzz } from "./support/fuzz/run-fuzz.js";
import { fuzzTargetNames } from "./support/fuzz/target-names.js";

const seconds = Number(process.env["TEST_FUZZ_SECONDS"] ?? 60);
const seed = Number(process.env["TEST_FUZZ_SEED"] ?? Date.now() % 2 ** 31);
/** In the proportion of what they have been found to hide. */
const shares = { parquet: 0.35, runs: 0.25, http: 0.15, safetensors: 0.15, csv: 0.1 } as const;

for (const target of fuzzTargetNames) {
  test(`mutants are read or rejected by name: ${target}`, async (t) => {
    const { report, failure } = await fuzz([target], { seed, durationMs: 1000 * seconds * shares[target] });
    t.diagnostic(`seed ${seed}: ${report?.inputs} inputs, ${report?.rejected} rejected`);
    assert.equal(failure, undefined);
  });
}
