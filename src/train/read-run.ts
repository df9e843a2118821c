/** Reads a run's folder, even while it is written or after a crash. Messages name missing and damaged files. */

import { join } from "node:path";
import { asFileError, errorCode } from "../data/index.js";
import { HoldfastError } from "../errors/index.js";
import { readRegularFile } from "../files/index.js";
import { type JsonRecord, type RunRecord, type RunStatus, runStates } from "../records/index.js";
import { MiB } from "../units/index.js";
import { CheckpointStore, type ListedCheckpoint } from "./checkpoints.js";
import { fromJson } from "./files/json.js";
import { readJsonLog } from "./files/json-log.js";
import { runFiles } from "./run-files.js";

/** The contents of a run's folder. */
export interface RunReading {
  readonly path: string;
  readonly run: RunRecord | undefined;
  readonly status: RunStatus | undefined;
  readonly metrics: readonly JsonRecord[];
  readonly results: JsonRecord | undefined;
  readonly checkpoints: readonly ListedCheckpoint[];
  /** The files that could not be read, with the reasons. Missing results and checkpoints are normal and have no message. */
  readonly messages: readonly string[];
}

export interface ReadRunOptions {
  /** True if the metrics are read; default: true. */
  readonly metrics?: boolean;
}

/** Reads a run's folder. Never throws: an unreadable item is undefined or omitted, with a message. Only the last lines of long metrics are read. */
export function readRun(path: string, { metrics: hasMetrics = true }: ReadRunOptions = {}): RunReading {
  const messages: string[] = [];
  const attempt = <Result>(read: () => Result, fallback: Result): Result => {
    try {
      return read();
    } catch (error) {
      messages.push(error instanceof Error ? error.message : String(error));
      return fallback;
    }
  };
  const run = attempt(() => readRunRecord(path), undefined);
  if (!run && messages.length === 0)
    messages.push(`${path} has no ${runFiles.run}: no run was started there.`);
  const none = { records: [], messages: [] };
  const metrics = hasMetrics ? attempt(() => readJsonLog(join(path, runFiles.metrics)), none) : none;
  return {
    path,
    run,
    status: attempt(() => readStatus(path), undefined),
    results: attempt(() => readRecord(path, runFiles.results), undefined),
    metrics: metrics.records,
    checkpoints: attempt(() => new CheckpointStore(join(path, runFiles.checkpoints)).list(), []),
    messages: [...messages, ...metrics.messages],
  };
}

/** The record of a run; undefined if there is none. Throws if it is damaged. */
export function readRunRecord(path: string): RunRecord | undefined {
  return readRecord(path, runFiles.run) as RunRecord | undefined;
}

/** A run's status; undefined if there is none. Throws if it is damaged. */
export function readStatus(path: string): RunStatus | undefined {
  const record = readRecord(path, runFiles.status);
  if (!record) return undefined;
  const { state, step, updated, progressed, pid, host } = record;
  const isComplete =
    runStates.some((runState) => runState === state) &&
    [step, pid].every((value) => typeof value === "number") &&
    typeof host === "string" &&
    [updated, progressed].every((time) => !Number.isNaN(Date.parse(String(time))));
  if (isComplete) return record as unknown as RunStatus;
  throw new HoldfastError(
    "BAD_FILE",
    `${join(path, runFiles.status)} is not a run's status: its state, step, times or process are missing.`,
    { numbers: { path } },
  );
}

/** A run's records have a few KiB. */
const maxRecordBytes = 16 * MiB;

function readRecord(folder: string, name: string): JsonRecord | undefined {
  const path = join(folder, name);
  let text: string;
  try {
    text = readRegularFile(path, maxRecordBytes).toString("utf8");
  } catch (error) {
    // ENOTDIR: the folder, or one above it, is a file.
    if (["ENOENT", "ENOTDIR"].includes(errorCode(error) ?? "")) return undefined;
    throw asFileError(`${path} can't be read`, path, error);
  }
  return fromJson(path, text);
}
