/** runtime: who may own bytes. Budget, persistent memory, arena, staging, capture, watchdog, recorder, diagnostics. */

export { Arena, alignment, poisonByte } from "./arena.js";
export type { Holder, StepStorage } from "./arena-blocks.js";
export {
  type ArenaFigure,
  arenaFigures,
  Board,
  type BudgetLabel,
  budgetLabels,
  type PhaseName,
  phaseNames,
} from "./board.js";
export { Budget, type Charge } from "./budget.js";
export type { CaptureState } from "./capture-gate.js";
export type { Diagnostics } from "./diagnostics.js";
export { chooseLimit, type FreeMemory, readFreeMemory } from "./free-memory.js";
export type { Imagination, IndexCheck, WorkPiece } from "./imagined.js";
export type { Mailbox } from "./mailbox.js";
export { PersistentMemory, type PersistentStorage, type Placement, type Region } from "./persistent.js";
export { type Judgement, judge, type Pressure, type Shortage, type Verdict } from "./pressure.js";
export { type EventKind, eventKinds, type RecordedEvent, Recorder } from "./recorder.js";
export { runAll } from "./run-all.js";
export {
  openRuntime,
  type Replayable,
  Runtime,
  type RuntimeOptions,
} from "./runtime.js";
export { SavedSet } from "./saved-set.js";
export {
  readSettings,
  type Setting,
  type SettingName,
  type SettingOptions,
  type Settings,
  settingsTable,
} from "./settings.js";
export type { ScratchMemory } from "./snapshot.js";
export { ownerOf, type Storage } from "./storage.js";
export type { TransferCount, UploadItem } from "./transfer.js";
export { startWatch, type Watch } from "./watch.js";
export { stallReportName } from "./watchdog/publish.js";
export type { StallReport } from "./watchdog/report.js";
export { stallReportText } from "./watchdog/report-text.js";
export type { LaunchRequest, Mark } from "./work.js";
