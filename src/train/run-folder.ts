/**
 * A run's folder, as the run itself writes it: what it is, how far it is, its metrics and its results. One process writes; what
 * it has written is whole whenever it is killed.
 */

import { statSync } from "node:fs";
import { hostname } from "node:os";
import { join } from "node:path";
import {
  errorCode,
  fileError,
  isThere,
  makeFolder,
  removeLeftovers,
  writeAtomically,
} from "../data/index.js";
import { HoldfastError } from "../errors/index.js";
import { type JsonRecord, toJson } from "./files/json.js";
import { type LogSizes, MetricsLog } from "./files/metrics-log.js";
import { identifyProcess } from "./files/process-identity.js";
import { RunLock } from "./files/run-lock.js";
import { requireRun } from "./missing-run.js";
import { readRun, readStatus } from "./read-run.js";
import { limitsIn, type RunPhase } from "./run-phases.js";
import {
  packageVersion,
  type RunProgress,
  type RunRecord,
  type RunState,
  type RunStatus,
  runFiles,
} from "./run-records.js";

export interface RunFolderOptions {
  /** Milliseconds since 1970; the system's clock unless given. */
  readonly now?: () => number;
  /** At most so often is progress written to status.json, in milliseconds; 1000 unless given. */
  readonly heartbeatMs?: number;
}

export interface NewRun extends RunFolderOptions {
  readonly settings: JsonRecord;
  /** The device's name, as it tells it. */
  readonly device: string;
}

export interface OpenedRun extends RunFolderOptions {
  /** Throws where this run can't be resumed. It is called before anything is written. */
  readonly check?: (run: RunRecord) => void;
}

/** Which metrics a resumed run writes again, beside those of later steps. */
export interface DroppedMetrics {
  readonly sizes?: LogSizes | undefined;
  readonly isDropped?: (record: JsonRecord) => boolean;
}

/** How a run ends. */
export interface RunEnd {
  readonly state: Exclude<RunState, "running">;
  readonly reason?: string;
  readonly exitCode: number;
}

export class RunFolder {
  readonly path: string;
  readonly run: RunRecord;
  readonly #lock: RunLock;
  #metrics: MetricsLog | undefined;
  readonly #now: () => number;
  readonly #heartbeatMs: number;
  #progress: RunProgress = { step: 0 };
  #progressedMs: number;
  #writtenMs = Number.NEGATIVE_INFINITY;
  #isOpen = true;

  private constructor(path: string, run: RunRecord, lock: RunLock, options: RunFolderOptions) {
    const { now = Date.now, heartbeatMs = 1000 } = options;
    this.path = path;
    this.run = run;
    this.#lock = lock;
    this.#now = now;
    this.#heartbeatMs = heartbeatMs;
    this.#progressedMs = now();
  }

  /** Begins a run in a new folder, or in one that is there and holds none; what a run has written is never overwritten. */
  static create(path: string, { settings, device, ...options }: NewRun): RunFolder {
    const { now = Date.now } = options;
    makeFolder(path);
    return locked(path, now, (lock) => {
      removeLeftovers(path);
      const recordPath = join(path, runFiles.run);
      if (isThere(recordPath)) {
        throw new HoldfastError(
          "BAD_ARGUMENT",
          `${path} holds a run already. Resume it with --resume, or give this one another folder.`,
          { numbers: { path } },
        );
      }
      const run: RunRecord = {
        ...{ settings, device, holdfast: packageVersion(), node: process.version },
        platform: `${process.platform} ${process.arch}`,
        host: hostname(),
        started: new Date(now()).toISOString(),
      };
      writeAtomically(recordPath, `${toJson("run", { ...run }, 2)}\n`);
      const folder = new RunFolder(path, run, lock, options);
      try {
        folder.#openMetrics();
        folder.#writeStatus({ state: "running" }, true);
        return folder;
      } catch (error) {
        folder.close();
        throw error;
      }
    });
  }

  /**
   * Resumes a run that is there. A run that is rejected keeps every byte: until the first note, only the lock is written. The
   * first note also removes what a kill has left half written.
   */
  static open(path: string, { check, ...options }: OpenedRun = {}): RunFolder {
    const { now = Date.now } = options;
    const run = requireRun(path);
    RunLock.requireFree(path, ...silenceOf(path, now));
    check?.(run);
    return locked(path, now, (lock) => {
      const folder = new RunFolder(path, run, lock, options);
      folder.#takeOverProgress();
      return folder;
    });
  }

  /** Rejects to go on where the folder was removed: to make it again would hide that all before is gone. */
  requireThere(): void {
    if (isThere(this.pathOf(runFiles.run))) return;
    throw new HoldfastError(
      "RUN_LOST",
      `${this.path} has no ${runFiles.run} any more: the run's folder was removed or moved while the run wrote to it. Put it back and resume, or run the command again to begin a new run.`,
      { numbers: { path: this.path } },
    );
  }

  /** A file or folder of the run. */
  pathOf(name: string): string {
    return join(this.path, name);
  }

  get checkpointsPath(): string {
    return this.pathOf(runFiles.checkpoints);
  }

  /** Adds a line to the metrics, as they come; `step` lets a resumed run drop what it will write again. */
  appendMetrics(record: JsonRecord): void {
    this.#openMetrics().append(record);
  }

  /** Makes the metrics so far last through a power cut: before the checkpoint that they belong to. Their size then, by name. */
  syncMetrics(): LogSizes {
    const metrics = this.#openMetrics();
    metrics.sync();
    return { [runFiles.metrics]: metrics.bytes };
  }

  /**
   * Takes out metrics that a run writes again when it goes on from a checkpoint: those that came after the log had its size then.
   * Where the checkpoint does not tell the size, those of later steps, and others that are named.
   */
  dropMetricsAfter(step: number, { sizes, isDropped }: DroppedMetrics = {}): void {
    const metrics = this.#openMetrics();
    const size = sizes?.[runFiles.metrics];
    if (size === undefined) metrics.dropAfter(step, isDropped);
    else metrics.cutTo(size);
  }

  /** Notes how far the run is, and that it is alive. Call it at every step: the file is written once a second. */
  noteProgress(progress: RunProgress): void {
    this.#openMetrics();
    const nowMs = this.#now();
    const isOtherPhase = progress.phase !== this.#progress.phase;
    if (isOtherPhase || progress.step !== this.#progress.step) this.#progressedMs = nowMs;
    this.#progress = progress;
    if (isOtherPhase || nowMs - this.#writtenMs >= this.#heartbeatMs || nowMs < this.#writtenMs)
      this.#writeStatus({ state: "running" }, false);
  }

  /** Says what the run does before its next step, at once: the phase may leave no time to say anything. */
  enterPhase(phase: RunPhase): void {
    this.noteProgress({ ...this.#progress, phase });
  }

  /** Says that the run is alive where it was. As with progress, the file is written once a second. */
  beat(): void {
    this.noteProgress(this.#progress);
  }

  writeResults(results: JsonRecord): void {
    this.#requireOpen();
    this.requireThere();
    writeAtomically(this.pathOf(runFiles.results), `${toJson("results", results, 2)}\n`);
  }

  /** Says how the run has ended, and gives the folder free. */
  end(end: RunEnd): void {
    this.#requireOpen();
    try {
      // A run that is said to have finished is not resumed: its metrics must last first.
      this.#metrics?.sync();
      this.#writeStatus(end, true);
    } finally {
      this.close();
    }
  }

  /** Gives the folder free and leaves the status as it is. Harmless when repeated. */
  close(): void {
    if (!this.#isOpen) return;
    this.#isOpen = false;
    try {
      this.#metrics?.close();
    } finally {
      this.#lock.release();
    }
  }

  /** The metrics, once what a kill has left half written is gone: a part of a line, files that were being written. */
  #openMetrics(): MetricsLog {
    this.#requireOpen();
    if (this.#metrics) return this.#metrics;
    removeLeftovers(this.path);
    this.#metrics = new MetricsLog(this.pathOf(runFiles.metrics));
    return this.#metrics;
  }

  /** Until it is told better, a resumed run is where it was. */
  #takeOverProgress(): void {
    const { step = 0, of, epoch, fold } = readRun(this.path).status ?? {};
    this.#progress = { step, of, epoch, fold };
  }

  #writeStatus(end: Pick<RunStatus, "state" | "reason" | "exitCode">, lasting: boolean): void {
    this.requireThere();
    const nowMs = this.#now();
    const { phase, ...progress } = this.#progress;
    const isTold = end.state === "running" || end.state === "failed" || end.state === "diverged";
    const status: RunStatus = {
      ...end,
      ...progress,
      phase: isTold ? phase : undefined,
      updated: new Date(nowMs).toISOString(),
      progressed: new Date(this.#progressedMs).toISOString(),
      ...identifyProcess(),
    };
    writeAtomically(this.pathOf(runFiles.status), `${toJson("status", { ...status }, 2)}\n`, { lasting });
    this.#writtenMs = nowMs;
  }

  #requireOpen(): void {
    if (this.#isOpen) return;
    throw new HoldfastError(
      "CLOSED",
      `The run in ${this.path} has ended: open its folder again to write there.`,
    );
  }
}

/**
 * Says that a run was stopped, for another thread of its own process: the one that has it open does not answer. Does nothing
 * where the run has ended or belongs to another process.
 */
export function markStopped(path: string, { reason, exitCode }: Omit<RunEnd, "state">): void {
  const status = readStatus(path);
  if (status?.state !== "running" || status.pid !== process.pid) return;
  const { phase: _, ...rest } = status;
  const stopped: RunStatus = {
    ...{ ...rest, state: "stopped", reason, exitCode },
    updated: new Date().toISOString(),
  };
  writeAtomically(join(path, runFiles.status), `${toJson("status", { ...stopped }, 2)}\n`, {
    lasting: false,
  });
  RunLock.releaseOwn(path);
}

/** Runs a function with the folder's lock, which is given back where it fails. */
function locked<Result>(path: string, now: () => number, body: (lock: RunLock) => Result): Result {
  const lock = RunLock.take(path, ...silenceOf(path, now));
  try {
    return body(lock);
  } catch (error) {
    lock.release();
    throw error;
  }
}

/** How long the run has been silent, and how long it may be: what a lock of another machine's process is judged by. */
function silenceOf(path: string, now: () => number): [() => number, (usualMs: number) => number] {
  return [
    () => now() - heardOfMs(path),
    (usualMs) => limitsIn(readRun(path).status?.phase, usualMs).silentMs,
  ];
}

/** When the run was last heard of; long ago where it never was. */
function heardOfMs(path: string): number {
  const status = join(path, runFiles.status);
  try {
    return statSync(status).mtimeMs;
  } catch (error) {
    if (errorCode(error) === "ENOENT") return 0;
    throw fileError(`${status} can't be read`, status, error);
  }
}
