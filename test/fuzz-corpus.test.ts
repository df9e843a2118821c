/**
 * Inputs that once did harm, and the seeds of the fuzzers: each is read or rejected with an error code,
 * within limits of memory and time.
 *
 * @mostlyWaits for a fuzzed process that hangs
 */

import assert from "node:assert/strict";
import test from "node:test";
import { MiB } from "../src/units/index.js";
import { corpusOf, type FuzzOptions, fuzz } from "./support/fuzz/run-fuzz.js";
import { fuzzTargetNames } from "./support/fuzz/target-names.js";

test("no input of the corpus does harm", async (t) => {
  const { report, failure } = await fuzz(fuzzTargetNames, { seed: 0, durationMs: 0 });
  assert.equal(failure, undefined);
  const kept = fuzzTargetNames.reduce((sum, target) => sum + corpusOf(target).length, 0);
  assert.ok((report?.inputs ?? 0) >= kept + 40, `${report?.inputs} inputs`);
  t.diagnostic(`${report?.inputs} inputs, ${report?.rejected} rejected`);
});

test("the fuzzers detect raw errors, lost rejections, crashes, hangs and too much memory", async () => {
  const targetsUrl = new URL("./support/fuzz/harmful-targets.js", import.meta.url);
  const tried = async (targets: readonly string[], limits: Partial<FuzzOptions> = {}): Promise<string> => {
    return (await fuzz(targets, { seed: 0, durationMs: 0, targetsUrl, ...limits })).failure ?? "";
  };
  // What the harmless target would fail with would have its name.
  assert.match(
    await tried(["nothing", "raw error"]),
    /^raw error, .*not a HoldfastError: TypeError: injected/,
  );
  assert.match(await tried(["lost rejection"]), /unhandled rejection: Error: injected/);
  assert.match(await tried(["too much memory"], { maxMemoryBytes: 250 * MiB }), /the process took \d+ MiB/);
  assert.match(await tried(["crash"]), /ended with SIGABRT/);
  assert.match(
    await tried(["hang"], { inputMs: 1000 }),
    /took longer than 1000 ms[^\n]*\nThe input is .*, 3 bytes/,
  );
});
