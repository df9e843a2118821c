/** watchdog: detects a stalled run, from a second thread and from an outside process, reports it and ends it. */

export type { OnStall } from "./messages.js";
export type { ProcessState, ThreadState } from "./process-state.js";
export type { OpenCall, OpenPhase, Reading, SharedMemory as Shared } from "./reading.js";
export type { Ending, StallKind, StallReport } from "./report.js";
export { stallReport } from "./report.js";
export { stallReportText } from "./report-text.js";
export { type Activity, type Stall, StallDetector } from "./stall.js";
export { startWatchdog, type Watchdog, type WatchdogOptions } from "./watchdog.js";
