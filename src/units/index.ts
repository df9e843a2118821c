/**
 * units: byte counts, addresses, durations and clocks, with their text forms. Also small tools below every layer: keys
 * of plain data, the heartbeat, worker threads, buffer sizes, close actions.
 */

export { bufferSizes } from "./buffer-sizes.js";
export {
  type Address,
  address,
  alignUp,
  type Bytes,
  bytes,
  contains,
  endOf,
  formatAddress,
  formatBytes,
  formatSpan,
  GiB,
  KiB,
  MiB,
  overlaps,
  parseBytes,
  type Span,
  span,
} from "./bytes.js";
export { type Clock, FakeClock, formatDuration, parseDuration, systemClock } from "./duration.js";
export {
  type BeatListener,
  beat,
  beatCounter,
  duringFileWork,
  type FileWork,
  fileWorkReader,
  fileWorks,
  heartbeatMemory,
  listenToBeats,
  makeWorkerBeat,
  recordTurn,
  turnCounter,
  type WorkStage,
} from "./heartbeat.js";
export { literalKey } from "./literal-key.js";
export { runAll } from "./run-all.js";
export { sleepSync } from "./sleep.js";
export { loadNative, startThread, threadAdvice } from "./start-thread.js";
export { currentThreadId, hasThreadEnded } from "./thread-id.js";
export { WeakList } from "./weak-list.js";
