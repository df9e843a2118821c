/** The ids of threads. */

import assert from "node:assert/strict";
import { once } from "node:events";
import { test } from "node:test";
import { Worker } from "node:worker_threads";
import { currentThreadId, hasThreadEnded } from "./thread-id.js";

const skip = process.platform !== "linux";

test("the main thread's id is the process id", { skip }, () => {
  assert.equal(currentThreadId(), process.pid);
  assert.equal(hasThreadEnded(process.pid), false);
});

test("a thread has ended once it is gone", { skip }, async () => {
  const code = `
    const { parentPort } = require("node:worker_threads");
    parentPort.postMessage(Number(/\\d+$/.exec(require("node:fs").readlinkSync("/proc/thread-self"))[0]));
    parentPort.once("message", () => process.exit());`;
  const worker = new Worker(code, { eval: true });
  const [threadId] = (await once(worker, "message")) as [number];
  assert.equal(hasThreadEnded(threadId), false);
  worker.postMessage("end");
  await once(worker, "exit");
  assert.equal(hasThreadEnded(threadId), true);
});
