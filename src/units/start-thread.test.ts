/** Threads that load native code: a process that ends meanwhile waits for them, as a load that is cut off aborts it. */

import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { join } from "node:path";
import { test } from "node:test";
import { repositoryRoot } from "../../test/support/repository.js";
import { loadNative } from "./index.js";

test("a process that ends while a thread loads native code waits for it, and keeps its exit code", () => {
  const program = join(repositoryRoot, "dist/test/fixtures/loading-thread.js");
  const { status, stdout, stderr } = spawnSync(process.execPath, [program], { encoding: "utf8" });
  assert.deepEqual([status, stdout, stderr], [4, "loaded\n", ""]);
});

test("what is loaded where no thread was started is loaded as ever", async () => {
  assert.equal(await loadNative(async () => 7), 7);
});
