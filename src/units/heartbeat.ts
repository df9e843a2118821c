/**
 * The heartbeat: long work calls `beat()` as it goes, so that a watcher in another thread can tell slow work from work
 * that stands still. A beat counts up one number in shared memory and reads no clock, so it may stand in inner loops.
 * It must not stand in a loop that could turn for ever: such a loop would never be found.
 */

/** The stage that long work has reached, for those who show it. */
export interface WorkStage {
  readonly name: string;
  /** How many parts of the stage are done, and of how many, where that is known. */
  readonly done?: number | undefined;
  readonly of?: number | undefined;
}

export type BeatListener = (stage: WorkStage | undefined) => void;

const memory = new SharedArrayBuffer(8);
const beats = new Float64Array(memory);
let heard: BeatListener | undefined;

/** Says that the work goes on; with a stage, also which part of it begins. */
export function beat(name?: string, done?: number, of?: number): void {
  beats[0] = (beats[0] ?? 0) + 1;
  if (heard) heard(name === undefined ? undefined : { name, done, of });
}

/** The memory that another thread reads this thread's beats from. */
export function heartbeatMemory(): SharedArrayBuffer {
  return memory;
}

/** How many beats there were: of this thread, or of the one whose memory is given. */
export function heartbeatIn(shared: SharedArrayBuffer = memory): () => number {
  const cells = new Float64Array(shared);
  return () => cells[0] ?? 0;
}

/** Calls a function at each beat of this thread, in the place of the one before; without one, none. */
export function listenToBeats(listener: BeatListener | undefined): void {
  heard = listener;
}
