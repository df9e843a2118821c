/**
 * The watchdog's thread. It reads the shared memories and beats; it never calls the driver and needs nothing from
 * the main thread, which may be stuck for ever. On a stall it hands its report to the outside process, and where
 * that one is lost, it reports and ends the run itself. A worker's script: see `watchdog.ts` for who starts it.
 */

import { setTimeout as passed } from "node:timers/promises";
import { parentPort, workerData } from "node:worker_threads";
import { exitCodes } from "../../../errors/index.js";
import {
  fileWorkIn,
  formatDuration,
  heartbeatIn,
  systemClock,
  threadAdvice,
  transposesIn,
} from "../../../units/index.js";
import { LabelTable } from "../label-table.js";
import { Recorder } from "../recorder.js";
import { SharedStatus } from "../shared-status.js";
import { isPausedByDebugger } from "./debugger-pause.js";
import { loadExit } from "./exit-process.js";
import { lookEveryMs, type WatchdogSettings } from "./messages.js";
import { OutsideProcess } from "./outside-process.js";
import { isStopped, readProcessState } from "./process-state.js";
import { ownThreadId, ProcessorWait } from "./processor-wait.js";
import { printWithin, publish } from "./publish.js";
import { type Shared, takeReading } from "./reading.js";
import { type Ending, type StallReport, stallReport } from "./report.js";
import { ReportPace } from "./report-pace.js";
import { isOutside, type Stall, StallDetector } from "./stall.js";

export interface ThreadData extends WatchdogSettings {
  readonly sharedStatus: SharedArrayBuffer;
  readonly labels: SharedArrayBuffer;
  readonly recorder: SharedArrayBuffer;
  /** The main thread's heartbeat. */
  readonly heartbeat: SharedArrayBuffer;
  /** The thread that is watched, as the system numbers it; undefined where that is not known. */
  readonly mainThreadId: number | undefined;
  /** The number of the outside process while it starts. */
  readonly startingOutside: Int32Array;
}

/** How long the outside process may take over a report before this thread acts alone. */
const outsidePatienceMs = 2000;
/** How long the way out of the process may take to load. */
const loadWithinMs = 5000;

const settings = workerData as ThreadData;
const { pid, stallAfterMs, reportDir, onStall } = settings;
const lookMs = lookEveryMs(stallAfterMs);
const shared = attach(settings);
const wait = new ProcessorWait(pid, settings.mainThreadId);
const detector = new StallDetector(shared.sharedStatus, stallAfterMs, systemClock, {
  beats: heartbeatIn(settings.heartbeat),
  turns: transposesIn(settings.heartbeat),
  fileWork: fileWorkIn(settings.heartbeat),
  waitedMs: () => wait.tick(),
});
const pace = new ReportPace(stallAfterMs);

/** The report that the outside process has been handed and has not published yet. */
let handedOver: StallReport | undefined;

const outside = new OutsideProcess(
  { pid, stallAfterMs, reportDir, onStall, threadId: ownThreadId() },
  { leave, reported: () => (handedOver = undefined) },
  { starting: settings.startingOutside },
);
// Up front: at the moment of a stall, the file system may be what is stuck. It may be stuck now.
const { exit, notes } = await Promise.race([
  loadExit().then(
    (exit) => ({ exit, notes: [] }),
    (error) => withoutExit(String(error)),
  ),
  passed(loadWithinMs, withoutExit(`not loaded after ${formatDuration(loadWithinMs)}`), { ref: false }),
]);

function withoutExit(reason: string): {
  readonly exit?: (code: number) => void;
  readonly notes: readonly string[];
} {
  return { notes: [`libc's _exit can't be loaded (${reason}): on a stall the run is killed with SIGKILL`] };
}

function attach(data: ThreadData): Shared {
  const labels = new LabelTable(data.labels);
  return {
    sharedStatus: new SharedStatus(data.sharedStatus),
    labels,
    recorder: new Recorder({ memory: data.recorder, labels }),
  };
}

function look(): void {
  const stall = detector.examine();
  const { activity } = detector;
  if (activity) outside.beat(takeReading(shared, activity));
  if (stall) void diagnoseOom(stall);
}

/** A process held by a debugger or a signal is not stalled. Nor is a run that has moved while that was checked. */
async function diagnoseOom(stall: Stall): Promise<void> {
  if (isStopped(pid) || (await isPausedByDebugger())) detector.restart();
  else if (detector.isRowInvariant && (endingOf(stall) !== "none" || pace.allows(systemClock.nowMs())))
    tell(stall);
}

/** Outside of the engine's own work, a long computation of the program looks like a hang: it is reported and goes on. */
function endingOf(stall: Stall): Ending {
  if (onStall === "report" || isOutside(stall)) return "none";
  return exit ? "exit" : "kill";
}

function tell(stall: Stall): void {
  const report = describe(stall);
  const { missing } = outside;
  if (missing !== undefined) return void concludeAlone(report, missing);
  handedOver = report;
  outside.report(report);
  const late = `the outside process did not act on the report within ${outsidePatienceMs} ms`;
  setTimeout(() => {
    if (report.ending !== "none" || handedOver === report) void concludeAlone(report, outside.lost ?? late);
  }, outsidePatienceMs);
}

function describe(stall: Stall): StallReport {
  const leftOut = pace.takeLeftOut();
  const unreported =
    leftOut === 1
      ? "1 more stall since the last report was not reported"
      : `${leftOut} more stalls since the last report were not reported`;
  return stallReport({
    kind: isOutside(stall) ? "program" : "stall",
    pid,
    noticedBy: "thread",
    elapsedMs: stall.stillMs,
    limitMs: stall.limitMs,
    reading: takeReading(shared, stall),
    process: readProcessState(pid),
    ending: endingOf(stall),
    notes: leftOut === 0 ? notes : [...notes, unreported],
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

const timer = setInterval(look, lookMs);
let isClosed = false;
parentPort?.once("message", () => {
  isClosed = true;
  clearInterval(timer);
  outside.dismiss();
});
await outside.settled;
if (outside.lost !== undefined && !isClosed && !outside.isUnwanted) {
  const text = `holdfast: The watchdog's outside process is missing (${outside.lost}). The run continues; only a thread inside the process watches it. ${threadAdvice}.\n`;
  await printWithin(text, outsidePatienceMs);
}
// At once: a process that is stopped before the first tick has left the outside process something to tell.
look();
parentPort?.postMessage("ready");
