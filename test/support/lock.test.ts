/** The lock between test processes: one waits for the other, and a lock whose owner is gone is no obstacle. */

import assert from "node:assert/strict";
import { spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { existsSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { makeFolder } from "./folders.js";
import { withLock } from "./lock.js";

test("a process waits until the owner of the lock has done its work", async () => {
  const [path, result] = [join(makeFolder(), "lock"), join(makeFolder(), "result")];
  const program = `
    import { writeFileSync, writeSync } from "node:fs";
    import { withLock } from ${JSON.stringify(new URL("./lock.js", import.meta.url).href)};
    withLock(${JSON.stringify(path)}, () => {
      writeSync(1, "begun");
      Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 300);
      writeFileSync(${JSON.stringify(result)}, "");
    });`;
  const owner = spawn(process.execPath, ["--input-type=module", "--eval", program], {
    stdio: ["ignore", "pipe", "inherit"],
  });
  const ended = once(owner, "exit");
  await once(owner.stdout, "data");
  let isDone = false;
  withLock(path, () => {
    isDone = existsSync(result);
  });
  assert.ok(isDone);
  assert.deepEqual(await ended, [0, null]);
});

test("a lock whose owner is gone is no obstacle, and is removed, also if the work throws", () => {
  const path = join(makeFolder(), "lock");
  writeFileSync(path, String(spawnSync("true").pid));
  let count = 0;
  withLock(path, () => {
    count++;
  });
  assert.deepEqual([count, existsSync(path)], [1, false]);
  const fail = (): never => {
    throw new Error("no compiler");
  };
  assert.throws(() => withLock(path, fail), /no compiler/);
  assert.equal(existsSync(path), false);
});
