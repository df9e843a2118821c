/**
 * Runs a launch's blocks on the calling thread and, when it pays, on worker threads too. `run` returns after every
 * block has run. Workers are optional: the launch does not wait for one that is still starting.
 */

import type { Worker } from "node:worker_threads";
import { HoldfastError } from "../../errors/index.js";
import { beat, heartbeatMemory, startThread, threadAdvice } from "../../units/index.js";
import {
  createSharedJob,
  type KernelFunction,
  publishJob,
  runBlocks,
  runChunks,
  type WorkerMessage,
  type WorkerStart,
  wakeWorkers,
  withdrawJob,
  word,
} from "./launch-protocol.js";

/**
 * A launch is shared when the calling thread would need at least this long for the rest of it. Waking a worker costs
 * the caller 8 µs, and the worker starts 13 µs later. Measured with `add` on two x86-64 cores: two threads lose below
 * 30 µs of work, break even at 33 µs and halve a launch of 120 µs.
 */
export const minSharedMs = 0.05;

/** More chunks than threads: if the system preempts a thread, the others take its share. */
const chunksPerThread = 8;

/**
 * A long launch is split so that every thread records a heartbeat about this often. On a machine with a dozen busy
 * programs per processor this becomes a quarter of a second.
 */
const beatEveryMs = 20;

export interface LoadedKernel {
  readonly id: number;
  readonly name: string;
  /** Undefined if only this thread has the function. */
  readonly module: WebAssembly.Module | undefined;
  readonly run: KernelFunction;
}

export interface PoolStatistics {
  /** Launches that were shared with workers. */
  readonly sharedLaunches: number;
  /** Blocks that workers ran, over all launches. */
  readonly workerBlocks: number;
}

export class WorkerPool {
  /** Including this thread. Fewer than requested if the system can't start all of them. */
  #threads: number;
  readonly #memory: WebAssembly.Memory;
  readonly #job = createSharedJob();
  readonly #kernels = new Map<number, LoadedKernel>();
  #workers: Worker[] = [];
  #sharedLaunches = 0;

  constructor(threads: number, memory: WebAssembly.Memory) {
    this.#threads = threads;
    this.#memory = memory;
  }

  get statistics(): PoolStatistics {
    return {
      sharedLaunches: this.#sharedLaunches,
      workerBlocks: Atomics.load(this.#job.words, word.workerBlocks),
    };
  }

  load(kernel: LoadedKernel): void {
    this.#kernels.set(kernel.id, kernel);
    if (this.#workers.length > 0) this.#postToWorkers(loadMessages([kernel]));
  }

  unload(kernel: LoadedKernel): void {
    this.#kernels.delete(kernel.id);
    if (this.#workers.length > 0) this.#postToWorkers([{ kind: "unload", kernelId: kernel.id }]);
  }

  /**
   * Runs all blocks of a launch. `call[0]` and `call[1]` are overwritten with block indices; the arguments follow them.
   */
  run(kernel: LoadedKernel, blocks: number, call: number[]): void {
    if (blocks === 0) return;
    try {
      if (blocks === 1 || !kernel.module) {
        runBlocks(kernel.run, call, 0, blocks);
        return;
      }
      // The cost of a block differs a thousandfold between kernels, so the first block is timed.
      const startMs = performance.now();
      runBlocks(kernel.run, call, 0, 1);
      const restMs = (performance.now() - startMs) * (blocks - 1);
      if (restMs < minSharedMs) runBlocks(kernel.run, call, 1, blocks);
      else if (this.#threads === 1) runLocally(kernel, call, 1, blocks);
      else this.#share(kernel, call, 1, blocks, restMs);
    } catch (cause) {
      // A collective that another rank makes impossible has its own error.
      if (cause instanceof HoldfastError) throw cause;
      const trap = cause instanceof Error ? cause.message : String(cause);
      const message = `Kernel "${kernel.name}" trapped in a launch of ${blocks} blocks: ${trap}. Its results are lost. Check its spans and counts, or run under the strict driver.`;
      throw new HoldfastError("KERNEL_FAILED", message, { numbers: { kernel: kernel.name, blocks }, cause });
    }
  }

  /** Workers see the flag when they wake, and exit. */
  close(): void {
    Atomics.store(this.#job.words, word.ending, 1);
    wakeWorkers(this.#job.words);
    this.#workers = [];
    this.#kernels.clear();
  }

  #share(
    kernel: LoadedKernel,
    call: number[],
    firstBlock: number,
    endBlock: number,
    expectedMs: number,
  ): void {
    this.#startWorkers();
    this.#sharedLaunches++;
    const { words } = this.#job;
    const chunks = Math.max(this.#threads * chunksPerThread, Math.ceil(expectedMs / beatEveryMs));
    publishJob(this.#job, { kernelId: kernel.id, call, firstBlock, endBlock, chunks });
    let localTrap: unknown;
    try {
      runChunks(words, kernel.run, call, beat);
    } catch (error) {
      localTrap = error;
      Atomics.store(words, word.failed, 1);
    }
    withdrawJob(words);
    if (localTrap !== undefined) throw localTrap;
    if (Atomics.load(words, word.failed) === 1) throw new Error(this.#failureText());
  }

  #failureText(): string {
    const { words, failureText } = this.#job;
    return new TextDecoder().decode(failureText.slice(0, Atomics.load(words, word.failureLength)));
  }

  #startWorkers(): void {
    if (this.#workers.length > 0) return;
    const workerData: WorkerStart = {
      ...{ buffer: this.#job.buffer, memory: this.#memory, heartbeat: heartbeatMemory() },
    };
    for (let thread = 1; thread < this.#threads; thread++) {
      const worker = startThread(new URL("./cpu-worker.js", import.meta.url), workerData);
      if (worker instanceof Error) {
        warnFewerThreads(thread, this.#threads, worker);
        this.#threads = thread;
        break;
      }
      worker.on("error", (error) => {
        const message = `A worker thread of the CPU driver ended; launches continue with fewer threads. ${error}`;
        process.emitWarning(message, { code: "HOLDFAST_WORKER_ENDED" });
      });
      this.#workers.push(worker);
    }
    this.#postToWorkers(loadMessages(this.#kernels.values()));
  }

  /** The count is incremented after the messages are posted, so that a worker that sees the count finds them all. */
  #postToWorkers(messages: readonly WorkerMessage[]): void {
    for (const worker of this.#workers) {
      for (const message of messages) worker.postMessage(message);
    }
    Atomics.add(this.#job.words, word.messages, messages.length);
  }
}

function warnFewerThreads(threads: number, requested: number, reason: Error): void {
  const message = `The system could not start a thread of the CPU driver (${reason.message}). Kernels run on ${threads} of ${requested} threads. ${threadAdvice}, or set HOLDFAST_THREADS=${threads}.`;
  process.emitWarning(message, { code: "HOLDFAST_FEWER_THREADS" });
}

/** Runs blocks on this thread alone, in ranges that grow until each takes long enough for a heartbeat. */
function runLocally(kernel: LoadedKernel, call: number[], firstBlock: number, endBlock: number): void {
  let count = 1;
  for (let first = firstBlock; first < endBlock; ) {
    const end = Math.min(first + count, endBlock);
    const startMs = performance.now();
    runBlocks(kernel.run, call, first, end);
    beat();
    const tookMs = performance.now() - startMs;
    if (2 * tookMs < beatEveryMs) count *= 2;
    else if (tookMs > beatEveryMs) count = Math.max(1, Math.floor(count / 2));
    first = end;
  }
}

function loadMessages(kernels: Iterable<LoadedKernel>): WorkerMessage[] {
  return [...kernels].flatMap(({ id, name, module }) =>
    module ? [{ kind: "load", kernelId: id, name, module }] : [],
  );
}
