/** How long a thread waits for a processor, as Linux counts it. */

import assert from "node:assert/strict";
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { makeFolder } from "../../../../test/support/folders.js";
import { ProcessorWait } from "./processor-wait.js";

test("tick() returns the wait since the last call, in milliseconds", () => {
  const proc = makeFolder();
  const task = join(proc, "7/task/8");
  mkdirSync(task, { recursive: true });
  const count = (waitedNs: number): void => writeFileSync(join(task, "schedstat"), `1000 ${waitedNs} 3\n`);
  count(5_000_000);
  const wait = new ProcessorWait(7, 8, proc);
  count(25_000_000);
  assert.deepEqual([wait.tick(), wait.tick()], [20, 0]);
});

test("without the system's figures the wait is 0", () => {
  assert.equal(new ProcessorWait(7, 8, makeFolder()).tick(), 0);
  assert.equal(new ProcessorWait(7, undefined).tick(), 0);
});
