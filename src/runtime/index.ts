/**
 * runtime: ownership of memory. Budget, persistent memory, arena, staging, capture, watchdog, recorder, diagnostics.
 */

export type { CaptureState } from "./capture/capture-state.js";
export type { Replayable } from "./capture/captures.js";
export type { ScratchMemory } from "./capture/checksum.js";
export type {
  Command,
  CopyCommand,
  FillCommand,
  LaunchCommand,
  LoadedCommand,
} from "./capture/command.js";
export type { LowerDigests } from "./capture/device-copies.js";
export type { IndexCheck, TraceSink } from "./capture/trace-sink.js";
export type { LaunchRequest, StreamEvent } from "./capture/work.js";
export { Arena } from "./memory/arena.js";
export type { Holder, StepStorage } from "./memory/arena-blocks.js";
export { Budget, type Charge } from "./memory/budget.js";
export {
  diagnoseOom,
  type OomCause,
  type OomDiagnosis,
  type OomFigures as Pressure,
  type OutOfMemory,
} from "./memory/diagnose-oom.js";
export { chooseLimit, type FreeMemory, readFreeMemory } from "./memory/free-memory.js";
export {
  PersistentMemory,
  type PersistentStorage,
  type Placement,
  type Region,
} from "./memory/persistent.js";
export { SavedSet } from "./memory/saved-set.js";
export { poisonByte } from "./memory/step-allocator.js";
export { alignment, ownerOf, type Storage } from "./memory/storage.js";
export type { Diagnostics } from "./observe/diagnostics.js";
export { type EventKind, eventKinds, type RecordedEvent, Recorder } from "./observe/recorder.js";
export {
  type ArenaFigure,
  arenaFigures,
  type BudgetLabel,
  budgetLabels,
  type PhaseName,
  phaseNames,
  SharedStatus,
} from "./observe/shared-status.js";
export { startWatch, type Watch } from "./observe/watch.js";
export { stallReportName } from "./observe/watchdog/publish.js";
export type { StallReport } from "./observe/watchdog/report.js";
export { stallReportText } from "./observe/watchdog/report-text.js";
export { openRuntime, Runtime, type RuntimeOptions } from "./runtime.js";
export {
  readSettings,
  type Setting,
  type SettingName,
  type SettingOptions,
  type Settings,
  settingsTable,
} from "./settings.js";
export type { Mailbox } from "./transfer/mailbox.js";
export type { TransferCount, UploadItem } from "./transfer/transfer.js";
