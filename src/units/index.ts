/** units: byte counts, addresses, durations and clocks; how they are written and read. Keys of plain data, and the sizes of buffers. */

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
  duringFileWork,
  type FileWork,
  fileWorkIn,
  fileWorks,
  heartbeatIn,
  heartbeatMemory,
  listenToBeats,
  noteTurn,
  transposesIn,
  type WorkStage,
  workerBeatIn,
} from "./heartbeat.js";
export { literalKey } from "./literal-key.js";
export { loadNative, startThread, threadAdvice } from "./start-thread.js";
export { WeakList } from "./weak-list.js";
