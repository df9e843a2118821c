/** Stops a training on Ctrl-C, SIGTERM or SIGHUP: after the current step if possible, and always within a few seconds. */

import { constants } from "node:os";
import { HoldfastError } from "../../errors/index.js";
import { startThread, threadAdvice } from "../../units/index.js";
import type { StopSignal } from "./signal-listener.js";
import type { StopThreadData, ToStopThread } from "./stop-thread.js";

/** Options of `stopOnSignals`. */
export interface StopOptions {
  /** Max. time from the first signal to the end of the process, in milliseconds. Default: 5000. */
  readonly withinMs?: number;
  /** The exit code if the second thread has to end the process. Default: 128 plus the signal's number. */
  readonly exitCode?: number;
}

/** The result of `stopOnSignals`. */
export interface StopSignals {
  /** Aborted after the first signal, when the main thread handles it: for `TrainerOptions.signal`. */
  readonly signal: AbortSignal;
  /** Resolves when the second thread listens. You need not wait for it. */
  readonly ready: Promise<void>;
  /** Sets the run's folder. It is marked as stopped if the second thread has to end the process. */
  markRun(folder: string): void;
  /** Stops listening and ends the time limit. Does nothing the second time. */
  close(): void;
}

const defaultWithinMs = 5000;
/** SIGHUP comes when the terminal is closed, or the connection to it is lost. Holdfast's handler replaces nohup's "ignore". */
const stopSignals: readonly StopSignal[] = ["SIGINT", "SIGTERM", "SIGHUP"];

/**
 * Ends this process within five seconds of Ctrl-C, SIGTERM or SIGHUP. The first signal aborts `signal`: a Trainer then ends after its
 * current step, and the program can save. A second thread listens too. It ends the process if the main thread is too busy to
 * end in time, or if a second signal comes.
 *
 * @example
 * ```ts
 * import { stopOnSignals } from "holdfast";
 * const stop = stopOnSignals();
 * // new Trainer({ …, signal: stop.signal }), run() and a checkpoint
 * console.log(stop.signal.aborted); // → false
 * stop.close();
 * ```
 */
export function stopOnSignals({ withinMs = defaultWithinMs, exitCode }: StopOptions = {}): StopSignals {
  if (!(withinMs > 0 && Number.isFinite(withinMs))) {
    throw new HoldfastError(
      "BAD_ARGUMENT",
      `withinMs is ${withinMs}. It must be a positive number of milliseconds, such as 5000.`,
      { numbers: { withinMs } },
    );
  }
  const halt = new AbortController();
  const abort = (): void => halt.abort();
  for (const name of stopSignals) process.on(name, abort);
  const exitCodes = Object.fromEntries(
    stopSignals.map((name) => [name, exitCode ?? 128 + constants.signals[name]]),
  ) as StopThreadData["exitCodes"];
  const workerData: StopThreadData = { signals: stopSignals, withinMs, exitCodes };
  const worker = startThread(new URL("./stop-thread.js", import.meta.url), workerData);
  const isRejected = worker instanceof Error;
  if (isRejected) warnOfMissingThread(worker.message, ` ${threadAdvice}.`);
  let isSettled = false;
  const keepAlive = (isKept: boolean): void => {
    if (!isRejected) isKept ? worker.ref() : worker.unref();
  };
  const ready = new Promise<void>((resolve) => {
    if (isRejected) return resolve();
    worker.once("message", () => resolve());
    worker.once("exit", () => resolve());
    worker.once("error", (error) => {
      warnOfMissingThread(error.message);
      resolve();
    });
  }).finally(() => {
    isSettled = true;
    keepAlive(false);
  });
  // A message listener keeps the process alive. That is only wanted while the program awaits `ready`.
  keepAlive(false);
  const send = (message: ToStopThread): void => {
    if (!isRejected) worker.postMessage(message);
  };
  let isOpen = true;
  return {
    signal: halt.signal,
    get ready() {
      if (!isSettled) keepAlive(true);
      return ready;
    },
    markRun: (folder) => send({ type: "run", folder }),
    close() {
      if (!isOpen) return;
      isOpen = false;
      for (const name of stopSignals) process.off(name, abort);
      send({ type: "close" });
    },
  };
}

function warnOfMissingThread(reason: string, advice = ""): void {
  process.emitWarning(
    `The signal thread can't run (${reason}). Ctrl-C, SIGTERM and SIGHUP have no time limit now, and wait while the main thread is busy.${advice}`,
    { code: "HOLDFAST_SIGNALS" },
  );
}
