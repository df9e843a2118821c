/** Threads that load native code: an exiting process waits for them, because an interrupted load aborts it. */

import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { join } from "node:path";
import { test } from "node:test";
import { repositoryRoot } from "../../test/support/repository.js";
import { loadNative } from "./index.js";

test("a process that exits while a thread loads native code waits for it, and keeps its exit code", () => {
  const program = join(repositoryRoot, "dist/test/fixtures/loading-thread.js");
  const { status, stdout, stderr } = spawnSync(process.execPath, [program], { encoding: "utf8" });
  assert.deepEqual([status, stdout, stderr], [4, "loaded\n", ""]);
});

test("without threads, native code is loaded normally", async () => {
  assert.equal(await loadNative(async () => 7), 7);
});
