/**
 * A worker thread of the pool: sleeps until there is a launch, runs chunks of its blocks, and sleeps again. It exits
 * when the pool closes. `launch-protocol.ts` has the rules.
 */

import { parentPort, receiveMessageOnPort, workerData } from "node:worker_threads";
import { makeWorkerBeat } from "../../units/index.js";
import {
  type KernelFunction,
  runChunks,
  type SharedJob,
  viewSharedJob,
  type WorkerMessage,
  type WorkerStart,
  word,
} from "./launch-protocol.js";
import { mathFunctions } from "./math-functions.js";

const start = workerData as WorkerStart;
const job = viewSharedJob(start.buffer);
const { words } = job;
const beat = makeWorkerBeat(start.heartbeat);
const kernels = new Map<number, KernelFunction>();
let messagesRead = 0;

/** Main counts its messages before it opens a job, so every kernel that the job can name is registered afterwards. */
function readMessages(): void {
  while (parentPort && messagesRead < Atomics.load(words, word.messages)) {
    const received = receiveMessageOnPort(parentPort) as { message: WorkerMessage } | undefined;
    if (!received) return;
    messagesRead++;
    const { message } = received;
    if (message.kind === "unload") kernels.delete(message.kernelId);
    else {
      const instance = new WebAssembly.Instance(message.module, {
        env: { memory: start.memory },
        math: mathFunctions,
      });
      kernels.set(message.kernelId, instance.exports[message.name] as KernelFunction);
    }
  }
}

function runShare(): void {
  readMessages();
  const kernel = kernels.get(Atomics.load(words, word.kernelId));
  if (!kernel) return;
  const call = [0, 0, ...job.arguments.subarray(0, Atomics.load(words, word.argumentCount))];
  beat();
  Atomics.add(words, word.workerBlocks, runChunks(words, kernel, call, beat));
}

/** Keeps the first failure of a job. */
function reportFailure({ failureText }: SharedJob, error: unknown): void {
  if (Atomics.compareExchange(words, word.failed, 0, 1) !== 0) return;
  // encodeInto rejects shared memory, so the text is encoded into a copy.
  const text = new TextEncoder().encode(String(error)).subarray(0, failureText.length);
  failureText.set(text);
  Atomics.store(words, word.failureLength, text.length);
}

let lastWakeUp = 0;
while (Atomics.load(words, word.ending) === 0) {
  Atomics.wait(words, word.wakeUps, lastWakeUp);
  lastWakeUp = Atomics.load(words, word.wakeUps);
  Atomics.add(words, word.active, 1);
  try {
    if (Atomics.load(words, word.open) === 1) runShare();
  } catch (error) {
    reportFailure(job, error);
  }
  if (Atomics.sub(words, word.active, 1) === 1) Atomics.notify(words, word.active);
}
