/**
 * The thread that enforces the time limit of a stop. It receives SIGINT, SIGTERM and SIGHUP even if the main thread is busy. Shortly
 * before the limit it marks the run as stopped and ends the process. `stop-on-signals.ts` starts this worker.
 */

import { write } from "node:fs";
import { setTimeout as passed } from "node:timers/promises";
import { isatty } from "node:tty";
import { parentPort, workerData } from "node:worker_threads";
import { formatDuration, systemClock } from "../../units/index.js";
import { listenForSignals, type StopSignal } from "./signal-listener.js";

export interface StopThreadData {
  readonly signals: readonly StopSignal[];
  /** Max. time from the first signal to the end of the process, in milliseconds. */
  readonly withinMs: number;
  /** By signal. */
  readonly exitCodes: Readonly<Record<StopSignal, number>>;
}

/** Messages of the main thread: the run's folder, or the end of listening. */
export type ToStopThread = { readonly type: "run"; readonly folder: string } | { readonly type: "close" };

const pollMs = 50;
/** Time reserved for ending the process, and for a machine that schedules this thread late. */
const reserveMs = 1000;
/** Max. time per action at the end: stderr or the disk may block. */
const maxActionMs = 250;
/** A terminal and a wrapper such as npm may both send the same Ctrl-C. */
const sameSignalMs = 500;
const stderr = 2;

const { signals, withinMs, exitCodes } = workerData as StopThreadData;
const graceMs = Math.max(withinMs / 2, withinMs - reserveMs);
// First: after this line no signal is lost, even if the main thread is busy.
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
/** Loaded early, because there is no time for it at the end. */
const loaded = import("../run-folder.js");

function poll(): void {
  const received = listener.poll();
  const nowMs = systemClock.nowMs();
  for (const signal of received) {
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
  // Last, because the main thread may still write to the folder.
  if (folder !== undefined) await within(mark(folder, `${signal}: ${reason}`, exitCode));
  listener.exitProcess(exitCode);
}

function within(work: Promise<void>): Promise<void> {
  return Promise.race([work, passed(maxActionMs)]);
}

/** Writes directly, because a worker's console needs the main thread. */
function print(text: string): Promise<void> {
  return new Promise((done) => write(stderr, text, () => done()));
}

/** Ignores errors: readers of the folder also see that the process is gone. */
async function mark(path: string, reason: string, exitCode: number): Promise<void> {
  try {
    const { markStopped } = await loaded;
    markStopped(path, { reason, exitCode });
  } catch {
    // The process ends anyway.
  }
}
