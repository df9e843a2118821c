/**
 * What the main thread and the workers share to run one launch together: a few 32-bit words, the arguments and a
 * failure's text, all in one SharedArrayBuffer. Nobody needs an event loop: everything is Atomics.
 *
 * The life of a launch:
 * 1. main writes the job, sets `open` to 1, raises `wakeUps` and notifies it;
 * 2. main and every worker that woke claim chunks of blocks by raising `nextChunk`;
 * 3. main, finding no chunk left, sets `open` to 0 and waits until `active` is 0.
 *
 * A worker raises `active` before it looks at `open`. So whoever saw `open` = 1 is counted before main can pass
 * step 3, and a worker that wakes late finds 0 and touches nothing: a job is never overwritten under a reader.
 */

/** Indices of the shared words. */
export const word = {
  /** Raised for every launch; workers sleep on it. */
  wakeUps: 0,
  /** 1 while the job may be claimed from. */
  open: 1,
  /** How many workers may be looking at the job. */
  active: 2,
  nextChunk: 3,
  chunks: 4,
  blocksPerChunk: 5,
  firstBlock: 6,
  endBlock: 7,
  kernelId: 8,
  argumentCount: 9,
  /** 1 once a thread trapped in this job; a worker leaves its text in `failureText`. */
  failed: 10,
  failureLength: 11,
  /** How many messages main has posted to each worker. */
  messages: 12,
  /** 1 when workers shall leave. */
  ending: 13,
  /** How many blocks workers have run since the pool was made. */
  workerBlocks: 14,
} as const;

const wordBytes = 64;
/** CUDA's own limit is 4 KiB of arguments; no kernel of ours comes near. */
export const maximumArguments = 512;
const failureBytes = 1024;

export type Words = Int32Array<SharedArrayBuffer>;

/** Typed windows on the shared bytes. */
export interface SharedJob {
  readonly buffer: SharedArrayBuffer;
  readonly words: Words;
  readonly arguments: Float64Array<SharedArrayBuffer>;
  readonly failureText: Uint8Array<SharedArrayBuffer>;
}

export function createSharedJob(): SharedJob {
  return viewSharedJob(new SharedArrayBuffer(wordBytes + maximumArguments * 8 + failureBytes));
}

export function viewSharedJob(buffer: SharedArrayBuffer): SharedJob {
  return {
    buffer,
    words: new Int32Array(buffer, 0, wordBytes / 4),
    arguments: new Float64Array(buffer, wordBytes, maximumArguments),
    failureText: new Uint8Array(buffer, wordBytes + maximumArguments * 8, failureBytes),
  };
}

/** A loaded kernel: (firstBlock, endBlock, …arguments). */
export type KernelFunction = (...args: number[]) => void;

/** Tells a worker of a kernel, or that one is gone. */
export type WorkerMessage =
  | {
      readonly kind: "load";
      readonly kernelId: number;
      readonly name: string;
      readonly module: WebAssembly.Module;
    }
  | { readonly kind: "unload"; readonly kernelId: number };

/** What a worker is born with. */
export interface WorkerStart {
  readonly buffer: SharedArrayBuffer;
  readonly memory: WebAssembly.Memory;
  /** Where the worker beats for the thread that it works for. */
  readonly heartbeat: SharedArrayBuffer;
}

export interface Job {
  readonly kernelId: number;
  /** Two places for block numbers, then the arguments. */
  readonly call: readonly number[];
  readonly firstBlock: number;
  readonly endBlock: number;
  /** Into how many chunks the blocks are cut, at most. */
  readonly chunks: number;
}

/** Step 1: main offers a job. Only for a main thread whose last job was withdrawn. */
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

/** Step 3: main takes the job back. When this returns no worker looks at it, nor will before the next one. */
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

/** Runs the blocks [first, end). The places of `call` behind the first two hold the arguments. */
export function runBlocks(kernel: KernelFunction, call: number[], first: number, end: number): void {
  call[0] = first;
  call[1] = end;
  kernel(...call);
}

/** Step 2: claims chunk after chunk of the open job and runs it; gives the number of blocks run. */
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
  let done = 0;
  // After a trap the launch is lost; whoever sees it stops claiming.
  while (Atomics.load(words, word.failed) === 0) {
    const chunk = Atomics.add(words, word.nextChunk, 1);
    if (chunk >= chunks) break;
    const first = firstBlock + chunk * blocksPerChunk;
    const end = Math.min(first + blocksPerChunk, endBlock);
    runBlocks(kernel, call, first, end);
    done += end - first;
    afterChunk?.();
  }
  return done;
}
