/**
 * The writer of a run's folder: settings, progress, metrics and results. Only one process writes. Its files are complete even if
 * it is killed at any time.
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
import { packageVersion } from "../files/index.js";
import type { JsonRecord, RunPhase, RunProgress, RunRecord, RunState, RunStatus } from "../records/index.js";
import { toJson } from "./files/json.js";
import { JsonLog } from "./files/json-log.js";
import type { LogSizes } from "./files/log-file.js";
import { identifyProcess } from "./files/process-identity.js";
import { RunLock } from "./files/run-lock.js";
import { requireRun } from "./missing-run.js";
import { readRun, readStatus } from "./read-run.js";
import { runFiles } from "./run-files.js";
import { limitsIn } from "./run-phases.js";

export interface RunFolderOptions {
  /** Milliseconds since 1970; default: the system's clock. */
  readonly now?: () => number;
  /** Min. interval between two writes of status.json, in milliseconds; default: 1000. */
  readonly heartbeatMs?: number;
}

export interface NewRun extends RunFolderOptions {
  readonly settings: JsonRecord;
  /** The device's name, as the driver reports it. */
  readonly device: string;
}

export interface OpenedRun extends RunFolderOptions {
  /** Throws if this run can't be resumed. It is called before the first write. */
  readonly check?: (run: RunRecord) => void;
}

/** The metrics that a resumed run writes again. */
export interface DroppedMetrics {
  readonly sizes?: LogSizes | undefined;
  readonly isDropped?: (record: JsonRecord) => boolean;
}

/** The end of a run. */
export interface RunEnd {
  readonly state: Exclude<RunState, "running">;
  readonly reason?: string;
  readonly exitCode: number;
}

export class RunFolder {
  readonly path: string;
  readonly run: RunRecord;
  readonly #lock: RunLock;
  #metrics: JsonLog | undefined;
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

  /** Starts a run in a new folder, or in a folder without a run. Never overwrites a run. */
  static create(path: string, { settings, device, ...options }: NewRun): RunFolder {
    const { now = Date.now } = options;
    makeFolder(path);
    return withLock(path, now, (lock) => {
      removeLeftovers(path);
      const recordPath = join(path, runFiles.run);
      if (isThere(recordPath)) {
        throw new HoldfastError(
          "BAD_ARGUMENT",
          `${path} already holds a run. Resume it with --resume, or use another folder for this run.`,
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
   * Resumes a run. If it is rejected, its folder stays unchanged: before the first note, only the lock is written. The first note
   * also removes the temporary files of an interrupted write.
   */
  static open(path: string, { check, ...options }: OpenedRun = {}): RunFolder {
    const { now = Date.now } = options;
    const run = requireRun(path);
    RunLock.requireFree(path, ...silenceOf(path, now));
    check?.(run);
    return withLock(path, now, (lock) => {
      const folder = new RunFolder(path, run, lock, options);
      folder.#takeOverProgress();
      return folder;
    });
  }

  /** Throws if the folder was removed. Making it again would hide the loss of all earlier data. */
  requireExists(): void {
    if (isThere(this.pathOf(runFiles.run))) return;
    throw new HoldfastError(
      "RUN_LOST",
      `${this.path} no longer has ${runFiles.run}: the run's folder was removed or moved during the run. Put it back and resume, or run the command again to start a new run.`,
      { numbers: { path: this.path } },
    );
  }

  /** The path of a file or folder of the run. */
  pathOf(name: string): string {
    return join(this.path, name);
  }

  get checkpointsPath(): string {
    return this.pathOf(runFiles.checkpoints);
  }

  /** Appends a line to the metrics. A resumed run uses its `step` to drop lines that it writes again. */
  appendMetrics(record: JsonRecord): void {
    this.#openMetrics().append(record);
  }

  /** Returns after the metrics are safe from a power cut, with their size by name. Call it before the checkpoint. */
  syncMetrics(): LogSizes {
    const metrics = this.#openMetrics();
    metrics.sync();
    return { [runFiles.metrics]: metrics.bytes };
  }

  /**
   * Removes the metrics that a resumed run writes again: those after the log's size at the checkpoint. If the checkpoint has no
   * size, those of later steps and those that `isDropped` selects.
   */
  dropMetricsAfter(step: number, { sizes, isDropped }: DroppedMetrics = {}): void {
    const metrics = this.#openMetrics();
    const size = sizes?.[runFiles.metrics];
    if (size === undefined) metrics.dropAfter(step, isDropped);
    else metrics.truncateTo(size);
  }

  /** Notes the progress and the heartbeat. Call it at every step: the file is written once a second. */
  noteProgress(progress: RunProgress): void {
    this.#openMetrics();
    const nowMs = this.#now();
    const isOtherPhase = progress.phase !== this.#progress.phase;
    if (isOtherPhase || progress.step !== this.#progress.step) this.#progressedMs = nowMs;
    this.#progress = progress;
    if (isOtherPhase || nowMs - this.#writtenMs >= this.#heartbeatMs || nowMs < this.#writtenMs)
      this.#writeStatus({ state: "running" }, false);
  }

  /** Notes a phase between steps. The status is written at once, because the phase may block the process. */
  enterPhase(phase: RunPhase): void {
    this.noteProgress({ ...this.#progress, phase });
  }

  /** Notes a heartbeat without progress. The file is written once a second. */
  beat(): void {
    this.noteProgress(this.#progress);
  }

  writeResults(results: JsonRecord): void {
    this.#requireOpen();
    this.requireExists();
    writeAtomically(this.pathOf(runFiles.results), `${toJson("results", results, 2)}\n`);
  }

  /** Writes the final state and releases the folder. */
  end(end: RunEnd): void {
    this.#requireOpen();
    try {
      // A finished run is never resumed, so its metrics must be synced first.
      this.#metrics?.sync();
      this.#writeStatus(end, true);
    } finally {
      this.close();
    }
  }

  /** Releases the folder without a change of the status. Does nothing the second time. */
  close(): void {
    if (!this.#isOpen) return;
    this.#isOpen = false;
    try {
      this.#metrics?.close();
    } finally {
      this.#lock.release();
    }
  }

  /** Opens the metrics. Removes an incomplete last line and the temporary files of an interrupted write. */
  #openMetrics(): JsonLog {
    this.#requireOpen();
    if (this.#metrics) return this.#metrics;
    removeLeftovers(this.path);
    this.#metrics = new JsonLog(this.pathOf(runFiles.metrics));
    return this.#metrics;
  }

  /** A resumed run starts at its old position. */
  #takeOverProgress(): void {
    const { step = 0, of, epoch, fold } = readRun(this.path).status ?? {};
    this.#progress = { step, of, epoch, fold };
  }

  #writeStatus(end: Pick<RunStatus, "state" | "reason" | "exitCode">, lasting: boolean): void {
    this.requireExists();
    const nowMs = this.#now();
    const { phase, ...progress } = this.#progress;
    const hasPhase = end.state === "running" || end.state === "failed" || end.state === "diverged";
    const status: RunStatus = {
      ...end,
      ...progress,
      phase: hasPhase ? phase : undefined,
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
      `The run in ${this.path} has ended. Open its folder again to write to it.`,
    );
  }
}

/**
 * Marks a run as stopped from another thread of its process, because the thread that has it open is blocked. Does nothing if the
 * run has ended or belongs to another process.
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
  RunLock.releaseForProcess(path);
}

/** Runs a function with the folder's lock. Releases the lock if the function throws. */
function withLock<Result>(path: string, now: () => number, body: (lock: RunLock) => Result): Result {
  const lock = RunLock.take(path, ...silenceOf(path, now));
  try {
    return body(lock);
  } catch (error) {
    lock.release();
    throw error;
  }
}

/** The time since the last heartbeat, and its limit. They decide whether the lock of a process on another machine is stale. */
function silenceOf(path: string, now: () => number): [() => number, (defaultMs: number) => number] {
  return [
    () => now() - lastHeartbeatMs(path),
    (defaultMs) => limitsIn(readRun(path).status?.phase, defaultMs).maxSilenceMs,
  ];
}

/** The time of the last heartbeat; 0 if there was none. */
function lastHeartbeatMs(path: string): number {
  const status = join(path, runFiles.status);
  try {
    return statSync(status).mtimeMs;
  } catch (error) {
    if (errorCode(error) === "ENOENT") return 0;
    throw fileError(`${status} can't be read`, status, error);
  }
}
