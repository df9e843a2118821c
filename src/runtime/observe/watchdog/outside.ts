/**
 * The outside process: listens to the watchdog thread's heartbeats, publishes its stall reports and, if asked to, ends the
 * run. When the thread falls silent, it reports from the last heartbeat and /proc, and kills the run if it is to end it. A
 * process that a signal or a debugger has stopped is not silent. The outside process exits when the watched process is gone.
 * A script: `node outside.js '<settings as JSON>'`.
 */

import { systemClock } from "../../../units/index.js";
import { lookEveryMs, receive, send, type ToOutside, type WatchdogSettings } from "./messages.js";
import { isStopped, readProcessState } from "./process-state.js";
import { ProcessorWait } from "./processor-wait.js";
import { printWithin, publish } from "./publish.js";
import type { Reading } from "./reading.js";
import { type StallReport, stallReport } from "./report.js";
import { ReportPace } from "./report-pace.js";
import { RunEnding } from "./run-ending.js";
import { WatchedTime } from "./watched-time.js";

const { pid, stallAfterMs, reportDir, onStall, threadId } = JSON.parse(
  process.argv[2] ?? "{}",
) as WatchdogSettings;
const lookMs = lookEveryMs(stallAfterMs);
/** More than the limit, so that a thread that is only late can still tell what it saw. */
const silentAfterMs = stallAfterMs + 500;
/** Once the pipe is closed: the watched process is about to be gone, or only its thread is. */
const doneCheckMs = 20;

const time = new WatchedTime(systemClock, 2 * lookMs);
/** A thread that waits for a processor is late and not silent. */
const wait = new ProcessorWait(pid, threadId);
const pace = new ReportPace(stallAfterMs);
let silentMs = 0;
let lastReading: Reading | undefined;
let isSilenceTold = false;
let isDismissed = false;
let isWriteStuck = false;
let state: "watching" | "publishing" | "ending" = "watching";

// The parent changes when the watched process is gone. Asking for its number could find another one by then.
const isAlive = () => process.ppid === pid;

const ending = new RunEnding(
  {
    orderToLeave: () => send(process.stdout, { type: "leave" }),
    kill: () => isAlive() && process.kill(pid, "SIGKILL"),
    isAlive,
    giveUp: () => void tellSurvivor().then(leave),
  },
  (delayMs, action) => setTimeout(action, delayMs),
);

function hear(message: ToOutside): void {
  silentMs = 0;
  isSilenceTold = false;
  if (message.type === "beat") lastReading = message.reading;
  else if (message.type === "stall") void conclude(message.report);
  else {
    isDismissed = true;
    leaveIfDone();
  }
}

function look(): void {
  leaveIfDone();
  silentMs = Math.max(0, silentMs + time.tick() - wait.tick());
  if (silentMs < silentAfterMs || isSilenceTold) return;
  if (isStopped(pid)) {
    silentMs = 0;
    return;
  }
  isSilenceTold = true;
  if (onStall === "end" || pace.allows(systemClock.nowMs())) void conclude(silence(silentMs));
}

function silence(elapsedMs: number): StallReport {
  return stallReport({
    kind: "silence",
    pid,
    noticedBy: "outside process",
    elapsedMs,
    limitMs: stallAfterMs,
    reading: lastReading,
    process: readProcessState(pid),
    ending: onStall === "end" ? "kill" : "none",
    notes: ["the watchdog's thread is silent: phases, figures and events are those of its last beat"],
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

async function tellSurvivor(): Promise<void> {
  const text = `holdfast: process ${pid} is still there 2s after SIGKILL: the kernel holds it (see dmesg).\n`;
  isWriteStuck ||= !(await printWithin(text, 500));
}

function leaveIfDone(): void {
  if (state === "publishing") return;
  // An end that was announced stands, also when the run moves again in the same moment.
  if (!isAlive() || (isDismissed && state === "watching")) leave();
}

function leave(): void {
  // process.exit waits for a write that nobody takes.
  if (isWriteStuck) process.kill(process.pid, "SIGKILL");
  process.exit(0);
}

// These go to the whole process group or control group. The engine may want to save first; this leaves when it does.
for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"] as const) process.on(signal, () => {});

receive(process.stdin, hear);
process.stdin.on("end", () => setInterval(leaveIfDone, doneCheckMs));
process.stdout.on("error", () => {});
setInterval(look, lookMs);
send(process.stdout, { type: "watching" });
