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

/** Typed windows on the shared bytes. */
export interface SharedJob {
  readonly buffer: SharedArrayBuffer;
  readonly words: Int32Array<SharedArrayBuffer>;
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
}

/** Runs the blocks [first, end). The places of `call` behind the first two hold the arguments. */
export function runBlocks(kernel: KernelFunction, call: number[], first: number, end: number): void {
  call[0] = first;
  call[1] = end;
  kernel(...call);
}

/** Claims chunk after chunk of the open job and runs it; gives the number of blocks run. */
export function runChunks(words: Int32Array, kernel: KernelFunction, call: number[]): number {
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
  }
  return done;
}
