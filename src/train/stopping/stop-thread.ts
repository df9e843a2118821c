/**
 * The thread that holds a stop to its time. It hears SIGINT, SIGTERM and SIGHUP whatever the main thread does. If the process is
 * still there shortly before the time is over, it marks the run as stopped and ends the process. A worker's script:
 * `stop-on-signals.ts` starts it.
 */

import { write } from "node:fs";
import { setTimeout as passed } from "node:timers/promises";
import { isatty } from "node:tty";
import { parentPort, workerData } from "node:worker_threads";
import { formatDuration, systemClock } from "../../units/index.js";
import { listenForSignals, type StopSignal } from "./signal-listener.js";

export interface StopThreadData {
  readonly signals: readonly StopSignal[];
  /** Within how many milliseconds of the first signal the process has to be gone. */
  readonly withinMs: number;
  /** By signal. */
  readonly exitCodes: Readonly<Record<StopSignal, number>>;
}

/** What the main thread tells: the run's folder, or that it is done. */
export type ToStopThread = { readonly type: "run"; readonly folder: string } | { readonly type: "close" };

const pollMs = 50;
/** The last part of the time is for the end itself, and for a machine that is slow to run this thread. */
const reserveMs = 1000;
/** How long each part of the end may take: nobody may read stderr, and a disk may take nothing more. */
const patienceMs = 250;
/** A terminal and a wrapper such as npm may both send the same Ctrl-C. */
const sameSignalMs = 500;
const stderr = 2;

const { signals, withinMs, exitCodes } = workerData as StopThreadData;
const graceMs = Math.max(withinMs / 2, withinMs - reserveMs);
// Before anything else is loaded: from here on no signal is lost, and the main thread may get busy.
const listener = await listenForSignals(signals);
let folder: string | undefined;
let first: { readonly signal: StopSignal; readonly atMs: number } | undefined;
const timer = setInterval(poll, pollMs);
parentPort?.postMessage("ready");
parentPort?.on("message", (message: ToStopThread) => {
  if (message.type === "run") ({ folder } = message);
  else {
    clearInterval(timer);
    listener.close();
    parentPort?.close();
  }
});
/** Loaded up front, beside the polling: at the end there is no time for it. */
const loaded = import("../run-folder.js");

function poll(): void {
  const heard = listener.poll();
  const nowMs = systemClock.nowMs();
  for (const signal of heard) {
    if (!first) first = { signal, atMs: nowMs };
    else if (nowMs - first.atMs > sameSignalMs) {
      void end(first.signal, `a second signal, ${signal}`);
      return;
    }
  }
  if (first && nowMs - first.atMs >= graceMs)
    void end(first.signal, `still busy ${formatDuration(graceMs)} after ${first.signal}`);
}

async function end(signal: StopSignal, reason: string): Promise<void> {
  clearInterval(timer);
  const exitCode = exitCodes[signal];
  const resume =
    folder === undefined
      ? ""
      : `; to resume from the last checkpoint, run the same command with --out ${folder}`;
  const start = isatty(stderr) ? "\r\u001b[K" : "";
  await within(print(`${start}holdfast: stopped: ${reason}${resume}.\n`));
  // Last of all: the main thread may still write there.
  if (folder !== undefined) await within(mark(folder, `${signal}: ${reason}`, exitCode));
  listener.exitProcess(exitCode);
}

function within(work: Promise<void>): Promise<void> {
  return Promise.race([work, passed(patienceMs)]);
}

/** A worker's own console needs the main thread. */
function print(text: string): Promise<void> {
  return new Promise((done) => write(stderr, text, () => done()));
}

/** Where the run can't be marked, its process is gone all the same, and readers of its folder see that. */
async function mark(path: string, reason: string, exitCode: number): Promise<void> {
  try {
    const { markStopped } = await loaded;
    markStopped(path, { reason, exitCode });
  } catch {
    // The end goes on.
  }
}
