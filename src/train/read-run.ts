/** A run's folder as readers see it: all that is there, also while it is written or after a crash, and what is missing. */

import { join } from "node:path";
import { asFileError, errorCode } from "../data/index.js";
import { HoldfastError } from "../errors/index.js";
import { readRegularFile } from "../files/index.js";
import { MiB } from "../units/index.js";
import { CheckpointStore, type ListedCheckpoint } from "./checkpoints.js";
import { fromJson, type JsonRecord } from "./files/json.js";
import { readMetrics } from "./files/metrics-log.js";
import { type RunRecord, type RunStatus, runFiles, runStates } from "./run-records.js";

/** All that a run's folder tells. */
export interface RunReading {
  readonly path: string;
  readonly run: RunRecord | undefined;
  readonly status: RunStatus | undefined;
  readonly metrics: readonly JsonRecord[];
  readonly results: JsonRecord | undefined;
  readonly checkpoints: readonly ListedCheckpoint[];
  /** What could not be read, and why. Results and checkpoints that are not there yet are no message. */
  readonly messages: readonly string[];
}

export interface ReadRunOptions {
  /** Whether the metrics are read; default: true. */
  readonly metrics?: boolean;
}

/** Reads a run's folder. Nothing is an error: what can't be read is undefined or left out, with a message. Of long metrics the last are read. */
export function readRun(path: string, { metrics: hasMetrics = true }: ReadRunOptions = {}): RunReading {
  const messages: string[] = [];
  const attempt = <Result>(read: () => Result, otherwise: Result): Result => {
    try {
      return read();
    } catch (error) {
      messages.push(error instanceof Error ? error.message : String(error));
      return otherwise;
    }
  };
  const run = attempt(() => readRunRecord(path), undefined);
  if (!run && messages.length === 0) messages.push(`${path} has no ${runFiles.run}: no run was begun there.`);
  const none = { records: [], messages: [] };
  const metrics = hasMetrics ? attempt(() => readMetrics(join(path, runFiles.metrics)), none) : none;
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

/** What was started; undefined where nothing was, an error where it is damaged. */
export function readRunRecord(path: string): RunRecord | undefined {
  return readRecord(path, runFiles.run) as RunRecord | undefined;
}

/** A run's status; undefined where there is none, an error where it is damaged. */
export function readStatus(path: string): RunStatus | undefined {
  const record = readRecord(path, runFiles.status);
  if (!record) return undefined;
  const { state, step, updated, progressed, pid, host } = record;
  const isWhole =
    runStates.some((known) => known === state) &&
    [step, pid].every((value) => typeof value === "number") &&
    typeof host === "string" &&
    [updated, progressed].every((time) => !Number.isNaN(Date.parse(String(time))));
  if (isWhole) return record as unknown as RunStatus;
  throw new HoldfastError(
    "BAD_FILE",
    `${join(path, runFiles.status)} is no status of a run: it lacks its state, step, times or process.`,
    { numbers: { path } },
  );
}

/** A run's own records have a few KiB. */
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
