/** Starts the watchdog: a thread that reads the board, and a process outside that watches the thread. */

import { HoldfastError } from "../../../errors/index.js";
import {
  formatDuration,
  heartbeatMemory,
  noteTurn,
  startThread,
  threadAdvice,
} from "../../../units/index.js";
import type { OnStall } from "./messages.js";
import { unwanted } from "./outside-process.js";
import { ownThreadId } from "./processor-wait.js";
import type { Shared } from "./reading.js";
import type { ThreadData } from "./thread.js";

export interface WatchdogOptions extends Shared {
  /** A phase or driver call that does not move for this long is a stall. */
  readonly stallAfterMs: number;
  /** Where stall reports go; made when the first one is written. */
  readonly reportDir: string;
  /** `end` ends the run with the exit code `stalled`; `report` lets it go on. */
  readonly onStall: OnStall;
}

export interface Watchdog {
  /** Thread and outside process are up. Nobody has to wait for it; while somebody does, the process stays alive. */
  readonly ready: Promise<void>;
  /** Lets thread and outside process go, at once and without a report. Closing twice is harmless. */
  close(): void;
}

/** More than the thread itself gives its own steps. */
const readyWithinMs = 20_000;
/** How long the main thread may take to hear of a thread that is up. */
const hearWithinMs = 1000;
/** How often the event loop tells that it turns, at the least. */
const maxTurnMs = 1000;

export function startWatchdog(options: WatchdogOptions): Watchdog {
  const { sharedStatus, labels, recorder, stallAfterMs, reportDir, onStall } = options;
  if (!(stallAfterMs > 0 && Number.isFinite(stallAfterMs))) throw badLimit(stallAfterMs);
  const startingOutside = new Int32Array(new SharedArrayBuffer(4));
  const workerData: ThreadData = {
    sharedStatus: sharedStatus.memory,
    labels: labels.memory,
    recorder: recorder.memory,
    heartbeat: heartbeatMemory(),
    startingOutside,
    mainThreadId: ownThreadId(),
    pid: process.pid,
    stallAfterMs,
    reportDir,
    onStall,
  };
  const worker = startThread(new URL("./thread.js", import.meta.url), workerData);
  if (worker instanceof Error) {
    warn(
      `The watchdog's thread can't be started (${worker.message}). The run continues, but stalls are not reported. ${threadAdvice}.`,
    );
    return { ready: Promise.resolve(), close: () => {} };
  }
  endWithProcess(startingOutside);
  const turning = setInterval(noteTurn, Math.min(stallAfterMs / 8, maxTurnMs)).unref();

  let isSettled = false;
  const ready = new Promise<void>((resolve, reject) => {
    const giveUp = (): void => {
      warn(
        `The watchdog's thread did not start within ${formatDuration(readyWithinMs)}. The run continues, but stalls may not be reported. ` +
          "Check the load of the machine, and that its disk responds.",
      );
      resolve();
    };
    // A main thread that was busy meanwhile runs its timers first, and hears of the thread after them.
    const askOnce = (): void => {
      timer = setTimeout(giveUp, hearWithinMs).unref();
    };
    let timer = setTimeout(askOnce, readyWithinMs).unref();
    const settle = (): void => {
      clearTimeout(timer);
      resolve();
    };
    worker.once("message", settle);
    worker.once("exit", () => {
      startingProcesses.delete(startingOutside);
      settle();
    });
    worker.once("error", (error) => {
      const failure = threadFailed(error);
      // Told here too: most runs don't wait for `ready`, and the thread may fail long after it.
      warn(failure.message);
      reject(failure);
    });
    // Again: a listener for messages keeps the process alive.
    worker.unref();
  }).finally(() => {
    isSettled = true;
    worker.unref();
  });
  ready.catch(() => {});

  return {
    get ready() {
      if (!isSettled) worker.ref();
      return ready;
    },
    close() {
      clearInterval(turning);
      worker.postMessage("close");
    },
  };
}

/** The numbers of outside processes that are not up yet, each in a cell that its thread writes; 0 for none. */
const startingProcesses = new Set<Int32Array>();
let isListening = false;

/** An outside process that hangs while it starts does not see this one end: it would keep stderr open for ever. */
function endWithProcess(starting: Int32Array): void {
  if (!isListening) process.on("exit", endStarting);
  isListening = true;
  startingProcesses.add(starting);
}

function endStarting(): void {
  for (const cell of startingProcesses) {
    const pid = Atomics.exchange(cell, 0, unwanted);
    try {
      if (pid > 0) process.kill(pid, "SIGKILL");
    } catch {
      // It has ended by itself.
    }
  }
}

function warn(message: string): void {
  process.stderr.write(`holdfast: ${message}\n`);
}

function badLimit(stallAfterMs: number): HoldfastError {
  return new HoldfastError(
    "BAD_SETTING",
    `The stall limit must be a positive number of milliseconds; this one is ${stallAfterMs}. ` +
      "Set HOLDFAST_STALL_AFTER to a duration such as 30s.",
    { numbers: { stallAfterMs } },
  );
}

function threadFailed(cause: Error): HoldfastError {
  return new HoldfastError(
    "UNSUPPORTED",
    `The watchdog's thread has failed: ${cause.message}. Stalls of this run can't be named any more; ` +
      "its outside process, where it is up, takes the silence for a stall. Please report this.",
    { cause },
  );
}
