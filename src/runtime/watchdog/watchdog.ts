/** Starts the watchdog: a thread that reads the board, and a process outside that watches the thread. */

import { Worker } from "node:worker_threads";
import { HoldfastError } from "../../errors/index.js";
import { heartbeatMemory } from "../../units/index.js";
import type { OnStall } from "./messages.js";
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

export function startWatchdog(options: WatchdogOptions): Watchdog {
  const { board, labels, recorder, stallAfterMs, reportDir, onStall } = options;
  if (!(stallAfterMs > 0 && Number.isFinite(stallAfterMs))) throw badLimit(stallAfterMs);
  const workerData: ThreadData = {
    board: board.memory,
    labels: labels.memory,
    recorder: recorder.memory,
    heartbeat: heartbeatMemory(),
    pid: process.pid,
    stallAfterMs,
    reportDir,
    onStall,
  };
  const worker = startThread(workerData);
  if (!worker) return { ready: Promise.resolve(), close: () => undefined };
  worker.unref();

  let isSettled = false;
  const ready = new Promise<void>((resolve, reject) => {
    worker.once("message", () => resolve());
    worker.once("exit", () => resolve());
    worker.once("error", (error) => {
      const failure = threadFailed(error);
      // Told here too: most runs don't wait for `ready`, and the thread may fail long after it.
      process.stderr.write(`holdfast: ${failure.message}\n`);
      reject(failure);
    });
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
    close: () => worker.postMessage("close"),
  };
}

/** Undefined where the system starts no more threads: a run without a watchdog is better than none, and it is said. */
function startThread(workerData: ThreadData): Worker | undefined {
  try {
    // Without the program's own flags: a loader or an inspector has no business in this thread.
    return new Worker(new URL("./thread.js", import.meta.url), { workerData, execArgv: [] });
  } catch (error) {
    process.stderr.write(
      `holdfast: the watchdog's thread can't be started: ${error instanceof Error ? error.message : error}. ` +
        "Stalls of this run are not reported. Raise the limit of processes (ulimit -u, or the container's pids limit).\n",
    );
    return undefined;
  }
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
