/**
 * The watchdog's thread. It reads the shared memories and sends heartbeats. It never calls the driver and needs nothing
 * from the main thread, which may be stuck. On a stall it passes its report to the outside process; if that is lost, it
 * reports and ends the run itself. A worker script, started by `watchdog.ts`.
 */

import { setTimeout as passed } from "node:timers/promises";
import { parentPort, workerData } from "node:worker_threads";
import { exitCodes } from "../../../errors/index.js";
import {
  beatCounter,
  currentThreadId,
  fileWorkReader,
  formatDuration,
  systemClock,
  threadAdvice,
  turnCounter,
} from "../../../units/index.js";
import { LabelTable } from "../label-table.js";
import { Recorder } from "../recorder.js";
import { SharedStatus } from "../shared-status.js";
import { isPausedByDebugger } from "./debugger-pause.js";
import { loadExit } from "./exit-process.js";
import type { WatchdogSettings } from "./messages.js";
import { OutsideProcess } from "./outside-process.js";
import { isStopped, readProcessState } from "./process-state.js";
import { ProcessorWait } from "./processor-wait.js";
import { printWithTimeout, publish } from "./publish.js";
import { type SharedMemory, takeReading } from "./reading.js";
import { type Ending, type StallReport, stallReport } from "./report.js";
import { ReportPace } from "./report-pace.js";
import { isOutside, type Stall, StallDetector } from "./stall.js";
import { checkIntervalMs } from "./watched-time.js";

export interface ThreadData extends WatchdogSettings {
  readonly sharedStatus: SharedArrayBuffer;
  readonly labels: SharedArrayBuffer;
  readonly recorder: SharedArrayBuffer;
  /** The main thread's heartbeat. */
  readonly heartbeat: SharedArrayBuffer;
  /** The system's id of the watched thread; undefined if unknown. */
  readonly mainThreadId: number | undefined;
  /** The process id of the outside process while it starts. */
  readonly startingOutside: Int32Array;
  /** 1 once the outside process has been started, or could not be. */
  readonly hasForked: Int32Array;
}

/** Time limit for the outside process to handle a report before this thread acts alone. */
const outsideTimeoutMs = 2000;
/** Time limit for loading `_exit`. */
const loadTimeoutMs = 5000;

const settings = workerData as ThreadData;
const { pid, stallAfterMs, reportDir, onStall } = settings;
const intervalMs = checkIntervalMs(stallAfterMs);
const shared = attach(settings);
const wait = new ProcessorWait(pid, settings.mainThreadId);
const detector = new StallDetector(shared.sharedStatus, stallAfterMs, systemClock, {
  beats: beatCounter(settings.heartbeat),
  turns: turnCounter(settings.heartbeat),
  fileWork: fileWorkReader(settings.heartbeat),
  waitedMs: () => wait.tick(),
});
const pace = new ReportPace(stallAfterMs);

/** The report that the outside process has received but not yet published. */
let pendingReport: StallReport | undefined;

const outside = new OutsideProcess(
  { pid, stallAfterMs, reportDir, onStall, threadId: currentThreadId() },
  { leave, reported: () => (pendingReport = undefined) },
  { starting: settings.startingOutside },
);
Atomics.store(settings.hasForked, 0, 1);
Atomics.notify(settings.hasForked, 0);
// Loaded up front: at the moment of a stall the file system may be stuck. It may be stuck now.
const { exit, notes } = await Promise.race([
  loadExit().then(
    (exit) => ({ exit, notes: [] }),
    (error) => withoutExit(String(error)),
  ),
  passed(loadTimeoutMs, withoutExit(`not loaded after ${formatDuration(loadTimeoutMs)}`), { ref: false }),
]);

function withoutExit(reason: string): {
  readonly exit?: (code: number) => void;
  readonly notes: readonly string[];
} {
  return { notes: [`libc's _exit cannot be loaded (${reason}): a stalled run is killed with SIGKILL`] };
}

function attach(data: ThreadData): SharedMemory {
  const labels = new LabelTable(data.labels);
  return {
    sharedStatus: new SharedStatus(data.sharedStatus),
    labels,
    recorder: new Recorder({ memory: data.recorder, labels }),
  };
}

function check(): void {
  const stall = detector.examine();
  const { activity } = detector;
  if (activity) outside.beat(takeReading(shared, activity));
  if (stall) void confirmStall(stall);
}

/** A process paused by a debugger or a signal is not stalled. Nor is a run that has moved meanwhile. */
async function confirmStall(stall: Stall): Promise<void> {
  if (isStopped(pid) || (await isPausedByDebugger())) detector.restart();
  else if (detector.isStill && (selectEnding(stall) !== "none" || pace.allows(systemClock.nowMs())))
    reportStall(stall);
}

/** Outside engine work, a long computation of the program looks like a hang: it is reported but not ended. */
function selectEnding(stall: Stall): Ending {
  if (onStall === "report" || isOutside(stall)) return "none";
  return exit ? "exit" : "kill";
}

function reportStall(stall: Stall): void {
  const report = describe(stall);
  const { missing } = outside;
  if (missing !== undefined) return void concludeAlone(report, missing);
  pendingReport = report;
  outside.report(report);
  const late = `the outside process did not act on the report within ${outsideTimeoutMs} ms`;
  setTimeout(() => {
    if (report.ending !== "none" || pendingReport === report)
      void concludeAlone(report, outside.lost ?? late);
  }, outsideTimeoutMs);
}

function describe(stall: Stall): StallReport {
  const omitted = pace.takeOmitted();
  const unreported =
    omitted === 1
      ? "1 more stall since the last report was not reported"
      : `${omitted} more stalls since the last report were not reported`;
  return stallReport({
    kind: isOutside(stall) ? "program" : "stall",
    pid,
    noticedBy: "thread",
    elapsedMs: stall.stillMs,
    limitMs: stall.limitMs,
    reading: takeReading(shared, stall),
    process: readProcessState(pid),
    ending: selectEnding(stall),
    notes: omitted === 0 ? notes : [...notes, unreported],
    time: new Date(),
  });
}

async function concludeAlone(report: StallReport, note: string): Promise<void> {
  await publish({ ...report, notes: [...report.notes, note] }, reportDir);
  if (report.ending !== "none") leave();
}

function leave(): void {
  exit?.(exitCodes.stalled.code);
  process.kill(pid, "SIGKILL");
}

const timer = setInterval(check, intervalMs);
let isClosed = false;
parentPort?.once("message", () => {
  isClosed = true;
  clearInterval(timer);
  outside.dismiss();
});
await outside.settled;
if (outside.lost !== undefined && !isClosed && !outside.isUnwanted) {
  const text = `holdfast: The watchdog's outside process is missing (${outside.lost}). The run continues, watched only by a thread inside the process. ${threadAdvice}.\n`;
  await printWithTimeout(text, outsideTimeoutMs);
}
// Check at once: if the process is stopped before the first tick, the outside process has a snapshot.
check();
parentPort?.postMessage("ready");
