/** The worker thread alone: how it wakes, works and exits. */

import assert from "node:assert/strict";
import { once } from "node:events";
import { test } from "node:test";
import { Worker } from "node:worker_threads";
import { generousTimeoutMs } from "../../../test/support/timeouts.js";
import { heartbeatMemory } from "../../units/index.js";
import { basicKernels } from "./basic-kernels.js";
import { compileKernel } from "./kernel.js";
import {
  createSharedJob,
  publishJob,
  type WorkerMessage,
  type WorkerStart,
  wakeWorkers,
  withdrawJob,
  word,
} from "./launch-protocol.js";

/** Starts one worker with the kernel `fill` as number 1; this thread is the main thread. */
function startWorker() {
  const memory = new WebAssembly.Memory({ initial: 4, maximum: 4, shared: true });
  const job = createSharedJob();
  const workerData: WorkerStart = { buffer: job.buffer, memory, heartbeat: heartbeatMemory() };
  const worker = new Worker(new URL("./cpu-worker.js", import.meta.url), { workerData });
  const { module } = compileKernel(basicKernels.fill, memory);
  const message: WorkerMessage = { kind: "load", kernelId: 1, name: "fill", module };
  worker.postMessage(message);
  Atomics.add(job.words, word.messages, 1);
  return { memory, job, worker };
}

test("a worker runs a published job alone, and claims nothing if it wakes after the withdrawal", async () => {
  const { memory, job, worker } = startWorker();
  const { words } = job;
  publishJob(job, { kernelId: 1, call: [0, 0, 65_536, 3, 5], firstBlock: 0, endBlock: 1, chunks: 8 });
  const deadlineMs = performance.now() + generousTimeoutMs;
  while (Atomics.load(words, word.workerBlocks) === 0) assert.ok(performance.now() < deadlineMs);
  withdrawJob(words);
  assert.equal(Atomics.load(words, word.active), 0);
  assert.deepEqual([...new Float32Array(memory.buffer, 65_536, 6)], [3, 3, 3, 3, 3, 0]);

  // The main thread is writing the next job when the worker wakes: the worker must not read it.
  Atomics.store(words, word.nextChunk, 0);
  Atomics.store(words, word.ending, 1);
  wakeWorkers(words);
  assert.deepEqual(await once(worker, "exit"), [0]);
  assert.equal(Atomics.load(words, word.nextChunk), 0);
  assert.equal(Atomics.load(words, word.workerBlocks), 1);
});

test("a worker that must exit before it has started exits at once", async () => {
  const { job, worker } = startWorker();
  Atomics.store(job.words, word.ending, 1);
  assert.deepEqual(await once(worker, "exit"), [0]);
  assert.equal(Atomics.load(job.words, word.workerBlocks), 0);
});

test("a worker skips a job whose kernel it does not have", async () => {
  const { job, worker } = startWorker();
  const deadlineMs = performance.now() + generousTimeoutMs;
  publishJob(job, { kernelId: 1, call: [0, 0, 65_536, 3, 5], firstBlock: 0, endBlock: 1, chunks: 1 });
  while (Atomics.load(job.words, word.workerBlocks) === 0) assert.ok(performance.now() < deadlineMs);
  withdrawJob(job.words);
  publishJob(job, { kernelId: 2, call: [0, 0], firstBlock: 0, endBlock: 8, chunks: 8 });
  Atomics.store(job.words, word.ending, 1);
  wakeWorkers(job.words);
  assert.deepEqual(await once(worker, "exit"), [0]);
  assert.equal(Atomics.load(job.words, word.nextChunk), 0);
  assert.equal(Atomics.load(job.words, word.failed), 0);
});
