/**
 * The heartbeat: shared memory from which a watcher in another thread can tell slow work from work that stands still. Long
 * work calls `beat()` as it goes, and worker threads a beat of their own. A beat counts up one number and reads no clock, so
 * it may stand in inner loops. It must not stand in a loop that could turn for ever: such a loop would never be found.
 * Beside the beats stand the file that is waited for, and how often the thread's event loop has turned.
 */

import { systemClock } from "./duration.js";

/** The stage that long work has reached, for those who show it. */
export interface WorkStage {
  readonly name: string;
  /** How many parts of the stage are done, and of how many, where that is known. */
  readonly done?: number | undefined;
  readonly of?: number | undefined;
}

export type BeatListener = (stage: WorkStage | undefined) => void;

/** Work on files, which can block for as long as the disk likes. */
export const fileWorks = ["disk-write", "disk-read"] as const;
export type FileWork = (typeof fileWorks)[number];

/** Places of the numbers, in f64s; those of worker threads are counted in the i32 after them. */
const at = { beats: 0, turns: 1, fileWork: 2, fileWorkMs: 3, workerBeats: 4 } as const;
const memory = new SharedArrayBuffer(8 * (at.workerBeats + 1));
const cells = new Float64Array(memory);
let heard: BeatListener | undefined;

/** Says that the work goes on; with a stage, also which part of it begins. */
export function beat(name?: string, done?: number, of?: number): void {
  count(at.beats);
  if (heard) heard(name === undefined ? undefined : { name, done, of });
}

/** Says that this thread's event loop turns. */
export function noteTurn(): void {
  count(at.turns);
}

/** Runs work on files, which a watcher sees from here on. */
export function duringFileWork<Result>(work: FileWork, body: () => Result): Result {
  const [outer = 0, outerMs = 0] = cells.subarray(at.fileWork, at.fileWork + 2);
  beat();
  cells.set([1 + fileWorks.indexOf(work), systemClock.nowMs()], at.fileWork);
  try {
    return body();
  } finally {
    beat();
    cells.set([outer, outerMs], at.fileWork);
  }
}

/** The memory that another thread reads this thread's beats from. */
export function heartbeatMemory(): SharedArrayBuffer {
  return memory;
}

/** A beat for a worker thread that works for the thread whose memory is given. */
export function workerBeatIn(shared: SharedArrayBuffer): () => void {
  const counts = new Int32Array(shared, 8 * at.workerBeats, 1);
  return () => void Atomics.add(counts, 0, 1);
}

/** How many beats there were: of this thread and its workers, or of the one whose memory is given. */
export function heartbeatIn(shared: SharedArrayBuffer = memory): () => number {
  const own = new Float64Array(shared);
  const workers = new Int32Array(shared, 8 * at.workerBeats, 1);
  return () => (own[at.beats] ?? 0) + Atomics.load(workers, 0);
}

/** How often the event loop of the thread with this memory has turned. */
export function transposesIn(shared: SharedArrayBuffer): () => number {
  const own = new Float64Array(shared);
  return () => own[at.turns] ?? 0;
}

/** The work on files that has not ended, and when it began. */
export function fileWorkIn(
  shared: SharedArrayBuffer,
): () => { readonly work: FileWork; readonly enteredMs: number } | undefined {
  const own = new Float64Array(shared);
  return () => {
    const work = fileWorks[(own[at.fileWork] ?? 0) - 1];
    return work && { work, enteredMs: own[at.fileWorkMs] ?? 0 };
  };
}

/** Calls a function at each beat of this thread, in the place of the one before; without one, none. */
export function listenToBeats(listener: BeatListener | undefined): void {
  heard = listener;
}

function count(cell: number): void {
  cells[cell] = (cells[cell] ?? 0) + 1;
}
