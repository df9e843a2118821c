/**
 * The state that the main thread and the workers share to run a launch: 32-bit words, the arguments and a failure text,
 * in one SharedArrayBuffer. Synchronization is by Atomics alone, so no event loop is needed.
 *
 * A launch in steps:
 * 1. main writes the job, sets `open` to 1, increments `wakeUps` and notifies it;
 * 2. main and every worker that woke claim chunks of blocks by incrementing `nextChunk`;
 * 3. when no chunk is left, main sets `open` to 0 and waits until `active` is 0.
 *
 * A worker increments `active` before it reads `open`. A worker that saw `open` = 1 is therefore counted before main
 * can pass step 3. A worker that wakes late sees 0 and touches nothing. So a job is never overwritten while it is read.
 */

/** Indices of the shared words. */
export const word = {
  /** Incremented for every launch; workers sleep on it. */
  wakeUps: 0,
  /** 1 while chunks can be claimed. */
  open: 1,
  /** Number of workers that may be reading the job. */
  active: 2,
  nextChunk: 3,
  chunks: 4,
  blocksPerChunk: 5,
  firstBlock: 6,
  endBlock: 7,
  kernelId: 8,
  argumentCount: 9,
  /** 1 after a thread trapped in this job; a worker leaves its message in `failureText`. */
  failed: 10,
  failureLength: 11,
  /** Number of messages that main has posted to each worker. */
  messages: 12,
  /** 1 when workers must exit. */
  ending: 13,
  /** Blocks run by workers since the pool was created. */
  workerBlocks: 14,
} as const;

const wordBytes = 64;
/** CUDA's limit is 4 KiB of arguments; no kernel comes near it. */
export const maxArguments = 512;
const failureBytes = 1024;

export type Words = Int32Array<SharedArrayBuffer>;

/** Typed views of the shared bytes. */
export interface SharedJob {
  readonly buffer: SharedArrayBuffer;
  readonly words: Words;
  readonly arguments: Float64Array<SharedArrayBuffer>;
  readonly failureText: Uint8Array<SharedArrayBuffer>;
}

export function createSharedJob(): SharedJob {
  return viewSharedJob(new SharedArrayBuffer(wordBytes + maxArguments * 8 + failureBytes));
}

export function viewSharedJob(buffer: SharedArrayBuffer): SharedJob {
  return {
    buffer,
    words: new Int32Array(buffer, 0, wordBytes / 4),
    arguments: new Float64Array(buffer, wordBytes, maxArguments),
    failureText: new Uint8Array(buffer, wordBytes + maxArguments * 8, failureBytes),
  };
}

/** A loaded kernel: (firstBlock, endBlock, …arguments). */
export type KernelFunction = (...args: number[]) => void;

/** Adds a kernel to a worker, or removes one. */
export type WorkerMessage =
  | {
      readonly kind: "load";
      readonly kernelId: number;
      readonly name: string;
      readonly module: WebAssembly.Module;
    }
  | { readonly kind: "unload"; readonly kernelId: number };

/** The data a worker starts with. */
export interface WorkerStart {
  readonly buffer: SharedArrayBuffer;
  readonly memory: WebAssembly.Memory;
  /** The worker records its heartbeat here, for the thread that it serves. */
  readonly heartbeat: SharedArrayBuffer;
}

export interface Job {
  readonly kernelId: number;
  /** Two slots for block indices, then the arguments. */
  readonly call: readonly number[];
  readonly firstBlock: number;
  readonly endBlock: number;
  /** Maximum number of chunks that the blocks are split into. */
  readonly chunks: number;
}

/** Step 1: publishes a job. The previous job must have been withdrawn. */
export function publishJob({ words, arguments: shared }: SharedJob, job: Job): void {
  const blocks = job.endBlock - job.firstBlock;
  const blocksPerChunk = Math.ceil(blocks / job.chunks);
  shared.set(job.call.slice(2));
  Atomics.store(words, word.argumentCount, job.call.length - 2);
  Atomics.store(words, word.kernelId, job.kernelId);
  Atomics.store(words, word.firstBlock, job.firstBlock);
  Atomics.store(words, word.endBlock, job.endBlock);
  Atomics.store(words, word.blocksPerChunk, blocksPerChunk);
  Atomics.store(words, word.chunks, Math.ceil(blocks / blocksPerChunk));
  Atomics.store(words, word.nextChunk, 0);
  Atomics.store(words, word.failed, 0);
  Atomics.store(words, word.open, 1);
  wakeWorkers(words);
}

/** Step 3: withdraws the job. After this returns, no worker reads it. */
export function withdrawJob(words: Words): void {
  Atomics.store(words, word.open, 0);
  for (
    let active = Atomics.load(words, word.active);
    active !== 0;
    active = Atomics.load(words, word.active)
  ) {
    Atomics.wait(words, word.active, active);
  }
}

export function wakeWorkers(words: Words): void {
  Atomics.add(words, word.wakeUps, 1);
  Atomics.notify(words, word.wakeUps);
}

/** Runs the blocks [first, end). `call[0]` and `call[1]` are overwritten; the arguments follow them. */
export function runBlocks(kernel: KernelFunction, call: number[], first: number, end: number): void {
  call[0] = first;
  call[1] = end;
  kernel(...call);
}

/** Step 2: claims and runs chunks of the open job until none is left. Returns the number of blocks run. */
export function runChunks(
  words: Words,
  kernel: KernelFunction,
  call: number[],
  afterChunk?: () => void,
): number {
  const chunks = Atomics.load(words, word.chunks);
  const blocksPerChunk = Atomics.load(words, word.blocksPerChunk);
  const firstBlock = Atomics.load(words, word.firstBlock);
  const endBlock = Atomics.load(words, word.endBlock);
  let blocksRun = 0;
  // After a trap the launch is lost: stop claiming.
  while (Atomics.load(words, word.failed) === 0) {
    const chunk = Atomics.add(words, word.nextChunk, 1);
    if (chunk >= chunks) break;
    const first = firstBlock + chunk * blocksPerChunk;
    const end = Math.min(first + blocksPerChunk, endBlock);
    runBlocks(kernel, call, first, end);
    blocksRun += end - first;
    afterChunk?.();
  }
  return blocksRun;
}
