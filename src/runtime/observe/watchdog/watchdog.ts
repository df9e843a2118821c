/** Starts the watchdog: a thread that reads the shared status, and an outside process that watches the thread. */

import { HoldfastError } from "../../../errors/index.js";
import {
  currentThreadId,
  formatDuration,
  heartbeatMemory,
  recordTurn,
  startThread,
  threadAdvice,
} from "../../../units/index.js";
import type { OnStall } from "./messages.js";
import { unwanted } from "./outside-process.js";
import type { SharedMemory } from "./reading.js";
import type { ThreadData } from "./watchdog-thread.js";

export interface WatchdogOptions extends SharedMemory {
  /** A phase or driver call without progress for this long is a stall. */
  readonly stallAfterMs: number;
  /** Folder for stall reports; created when the first one is written. */
  readonly reportDir: string;
  /** `end` ends the run with the exit code `stalled`; `report` lets it continue. */
  readonly onStall: OnStall;
}

export interface Watchdog {
  /** Resolves when thread and outside process run. Waiting is optional, and keeps the process alive. */
  readonly ready: Promise<void>;
  /** Blocks until the thread has started the outside process, so that it forks no more. Gives up after some seconds. */
  waitForFork(): void;
  /** Dismisses thread and outside process at once, without a report. Idempotent. */
  close(): void;
}

/** More than the sum of the thread's limits. */
const readyTimeoutMs = 20_000;
/** Time limit for the main thread to receive the thread's message. */
const messageTimeoutMs = 1000;
/** Time limit for the thread to start the outside process. */
const forkTimeoutMs = 10_000;
/** Maximum interval between heartbeats of the event loop. */
const maxTurnMs = 1000;

export function startWatchdog(options: WatchdogOptions): Watchdog {
  const { sharedStatus, labels, recorder, stallAfterMs, reportDir, onStall } = options;
  if (!(stallAfterMs > 0 && Number.isFinite(stallAfterMs))) throw badLimit(stallAfterMs);
  const startingOutside = new Int32Array(new SharedArrayBuffer(4));
  const hasForked = new Int32Array(new SharedArrayBuffer(4));
  const workerData: ThreadData = {
    sharedStatus: sharedStatus.memory,
    labels: labels.memory,
    recorder: recorder.memory,
    heartbeat: heartbeatMemory(),
    startingOutside,
    hasForked,
    mainThreadId: currentThreadId(),
    pid: process.pid,
    stallAfterMs,
    reportDir,
    onStall,
  };
  const worker = startThread(new URL("./watchdog-thread.js", import.meta.url), workerData);
  if (worker instanceof Error) {
    warn(
      `The watchdog's thread could not start (${worker.message}). The run continues, but stalls are not reported. ${threadAdvice}.`,
    );
    return { ready: Promise.resolve(), waitForFork: () => {}, close: () => {} };
  }
  endWithProcess(startingOutside);
  const turning = setInterval(recordTurn, Math.min(stallAfterMs / 8, maxTurnMs)).unref();

  let isSettled = false;
  const ready = new Promise<void>((resolve, reject) => {
    const giveUp = (): void => {
      warn(
        `The watchdog's thread did not start within ${formatDuration(readyTimeoutMs)}. The run continues, but stalls may not be reported. ` +
          "Check the load of the machine, and that its disk responds.",
      );
      resolve();
    };
    // A main thread that was busy runs its timers first, and receives the message after them.
    const waitForMessage = (): void => {
      timer = setTimeout(giveUp, messageTimeoutMs).unref();
    };
    let timer = setTimeout(waitForMessage, readyTimeoutMs).unref();
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
      // Also warn here: most runs do not wait for `ready`, and the thread may fail long after it.
      warn(failure.message);
      reject(failure);
    });
    // Again: a message listener keeps the process alive.
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
    waitForFork() {
      Atomics.wait(hasForked, 0, 0, forkTimeoutMs);
    },
    close() {
      clearInterval(turning);
      worker.postMessage("close");
    },
  };
}

/** Process ids of outside processes that are still starting, each in a cell that its thread writes; 0 for none. */
const startingProcesses = new Set<Int32Array>();
let isListening = false;

/** An outside process that hangs while starting does not notice the end of this process and would keep stderr open. */
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
      // It has already exited.
    }
  }
}

function warn(message: string): void {
  process.stderr.write(`holdfast: ${message}\n`);
}

function badLimit(stallAfterMs: number): HoldfastError {
  return new HoldfastError(
    "BAD_SETTING",
    `The stall limit must be a positive number of milliseconds, not ${stallAfterMs}. ` +
      "Set HOLDFAST_STALL_AFTER to a duration such as 30s.",
    { numbers: { stallAfterMs } },
  );
}

function threadFailed(cause: Error): HoldfastError {
  return new HoldfastError(
    "UNSUPPORTED",
    `The watchdog's thread has failed: ${cause.message}. It no longer reports stalls of this run. ` +
      "The outside process, if it runs, will report the missing heartbeats as a stall. Please report this bug.",
    { cause },
  );
}
