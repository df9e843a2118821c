/**
 * The outside process: receives the watchdog thread's heartbeats, publishes its stall reports and, if configured, ends
 * the run. When the heartbeats stop, it reports from the last one and /proc, and kills the run if configured. A process
 * stopped by a signal or a debugger does not count. It exits when the watched process is gone. A script: `node
 * outside.js '<settings as JSON>'`.
 */

import { systemClock } from "../../../units/index.js";
import { receive, send, type ToOutside, type WatchdogSettings } from "./messages.js";
import { isStopped, readProcessState } from "./process-state.js";
import { ProcessorWait } from "./processor-wait.js";
import { printWithTimeout, publish } from "./publish.js";
import type { Reading } from "./reading.js";
import { type StallReport, stallReport } from "./report.js";
import { ReportPace } from "./report-pace.js";
import { RunEnding } from "./run-ending.js";
import { checkIntervalMs, WatchedTime } from "./watched-time.js";

const { pid, stallAfterMs, reportDir, onStall, threadId } = JSON.parse(
  process.argv[2] ?? "{}",
) as WatchdogSettings;
const intervalMs = checkIntervalMs(stallAfterMs);
/** More than the limit, so that a thread that is only late can still report. */
const silentAfterMs = stallAfterMs + 500;
/** After the pipe closed: the process is about to exit, or only its thread is gone. */
const doneCheckMs = 20;

const time = new WatchedTime(systemClock, 2 * intervalMs);
/** A thread that waits for a processor is late, not silent. */
const wait = new ProcessorWait(pid, threadId);
const pace = new ReportPace(stallAfterMs);
let silentMs = 0;
let lastReading: Reading | undefined;
let isSilenceReported = false;
let isDismissed = false;
let isWriteStuck = false;
let state: "watching" | "publishing" | "ending" = "watching";

// The parent changes when the watched process is gone. Its pid could already be reused.
const isAlive = () => process.ppid === pid;

const ending = new RunEnding(
  {
    orderToLeave: () => send(process.stdout, { type: "leave" }),
    kill: () => isAlive() && process.kill(pid, "SIGKILL"),
    isAlive,
    giveUp: () => void reportSurvivor().then(leave),
  },
  (delayMs, action) => setTimeout(action, delayMs),
);

function handleMessage(message: ToOutside): void {
  silentMs = 0;
  isSilenceReported = false;
  if (message.type === "beat") lastReading = message.reading;
  else if (message.type === "stall") void conclude(message.report);
  else {
    isDismissed = true;
    leaveIfDone();
  }
}

function check(): void {
  leaveIfDone();
  silentMs = Math.max(0, silentMs + time.tick() - wait.tick());
  if (silentMs < silentAfterMs || isSilenceReported) return;
  if (isStopped(pid)) {
    silentMs = 0;
    return;
  }
  isSilenceReported = true;
  if (onStall === "end" || pace.allows(systemClock.nowMs())) void conclude(silenceReport(silentMs));
}

function silenceReport(elapsedMs: number): StallReport {
  return stallReport({
    kind: "silence",
    pid,
    noticedBy: "outside process",
    elapsedMs,
    limitMs: stallAfterMs,
    reading: lastReading,
    process: readProcessState(pid),
    ending: onStall === "end" ? "kill" : "none",
    notes: ["the watchdog's thread is silent: phases, figures and events are from its last heartbeat"],
    time: new Date(),
  });
}

async function conclude(report: StallReport): Promise<void> {
  if (state !== "watching") return;
  state = "publishing";
  isWriteStuck = !(await publish(report, reportDir));
  send(process.stdout, { type: "reported" });
  state = report.ending === "none" ? "watching" : "ending";
  if (report.ending !== "none") ending.begin(report.ending);
  leaveIfDone();
}

async function reportSurvivor(): Promise<void> {
  const text = `holdfast: process ${pid} still exists 2s after SIGKILL: it is blocked in the kernel (see dmesg).\n`;
  isWriteStuck ||= !(await printWithTimeout(text, 500));
}

function leaveIfDone(): void {
  if (state === "publishing") return;
  // An announced end stands, even if the run moves again at the same moment.
  if (!isAlive() || (isDismissed && state === "watching")) leave();
}

function leave(): void {
  // process.exit waits for pending writes.
  if (isWriteStuck) process.kill(process.pid, "SIGKILL");
  process.exit(0);
}

// These go to the whole process group or cgroup. The engine may still save; this process exits after it.
for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"] as const) process.on(signal, () => {});

receive(process.stdin, handleMessage);
process.stdin.on("end", () => setInterval(leaveIfDone, doneCheckMs));
process.stdout.on("error", () => {});
setInterval(check, intervalMs);
send(process.stdout, { type: "watching" });
