/**
 * The heartbeat: shared memory from which a watcher in another thread can tell slow work from stalled work. Long work
 * calls `beat()` as it goes; worker threads count their beats separately. A beat increments a number and reads no
 * clock, so it may be in inner loops. It must not be in a loop that could run for ever: the watcher would never detect it. The
 * memory also holds the file work in progress and the turns of the thread's event loop.
 */

import { systemClock } from "./duration.js";

/** The stage of long work, for displays. */
export interface WorkStage {
  readonly name: string;
  /** Completed items of the stage, and their total, if known. */
  readonly done?: number | undefined;
  readonly of?: number | undefined;
}

export type BeatListener = (stage: WorkStage | undefined) => void;

/** File work, which can block as long as the disk does. */
export const fileWorks = ["disk-write", "disk-read"] as const;
export type FileWork = (typeof fileWorks)[number];

/** Offsets of the numbers, in f64s; the worker threads' beats are in the i32 after them. */
const offsets = { beats: 0, turns: 1, fileWork: 2, fileWorkMs: 3, workerBeats: 4 } as const;
const memory = new SharedArrayBuffer(8 * (offsets.workerBeats + 1));
const cells = new Float64Array(memory);
let beatListener: BeatListener | undefined;

/** Reports progress; with a name, also the stage that starts. */
export function beat(name?: string, done?: number, of?: number): void {
  count(offsets.beats);
  if (beatListener) beatListener(name === undefined ? undefined : { name, done, of });
}

/** Reports a turn of this thread's event loop. */
export function recordTurn(): void {
  count(offsets.turns);
}

/** Runs file work, visible to watchers until it ends. */
export function duringFileWork<Result>(work: FileWork, body: () => Result): Result {
  const [outer = 0, outerMs = 0] = cells.subarray(offsets.fileWork, offsets.fileWork + 2);
  beat();
  cells.set([1 + fileWorks.indexOf(work), systemClock.nowMs()], offsets.fileWork);
  try {
    return body();
  } finally {
    beat();
    cells.set([outer, outerMs], offsets.fileWork);
  }
}

/** The shared memory with this thread's beats. */
export function heartbeatMemory(): SharedArrayBuffer {
  return memory;
}

/** Returns the beat function of a worker that serves the thread with this memory. */
export function makeWorkerBeat(shared: SharedArrayBuffer): () => void {
  const counts = new Int32Array(shared, 8 * offsets.workerBeats, 1);
  return () => void Atomics.add(counts, 0, 1);
}

/** Returns a counter of the beats of a thread and its workers. Default: this thread. */
export function beatCounter(shared: SharedArrayBuffer = memory): () => number {
  const view = new Float64Array(shared);
  const workers = new Int32Array(shared, 8 * offsets.workerBeats, 1);
  return () => (view[offsets.beats] ?? 0) + Atomics.load(workers, 0);
}

/** Returns a counter of the event loop turns of the thread with this memory. */
export function turnCounter(shared: SharedArrayBuffer): () => number {
  const view = new Float64Array(shared);
  return () => view[offsets.turns] ?? 0;
}

/** Returns a reader of the file work in progress and its start time. */
export function fileWorkReader(
  shared: SharedArrayBuffer,
): () => { readonly work: FileWork; readonly enteredMs: number } | undefined {
  const view = new Float64Array(shared);
  return () => {
    const work = fileWorks[(view[offsets.fileWork] ?? 0) - 1];
    return work && { work, enteredMs: view[offsets.fileWorkMs] ?? 0 };
  };
}

/** Sets the function that is called at each beat of this thread; undefined removes it. */
export function listenToBeats(listener: BeatListener | undefined): void {
  beatListener = listener;
}

function count(cell: number): void {
  cells[cell] = (cells[cell] ?? 0) + 1;
}
