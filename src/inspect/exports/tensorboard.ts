/** Exports a run's curves for TensorBoard from its files, during or after the run. */

import { existsSync } from "node:fs";
import { basename, join, resolve } from "node:path";
import type { JsonRecord } from "../../records/index.js";
import { countSteps, inspectionFiles, readRun } from "../../train/index.js";
import { EventFileWriter } from "./event-file.js";
import { bucketSteps, type StepBucket } from "./step-buckets.js";

/** Max. points per curve; TensorBoard draws about a thousand. */
const maxPoints = 10_000;

export interface TensorBoardExport {
  /** The event file. */
  readonly path: string;
  /** Points of all curves. */
  readonly points: number;
  /** Unreadable files, and how steps were grouped. */
  readonly messages: readonly string[];
}

/**
 * Writes one event file to the sub-folder of `outFolder` with the run's name, so that TensorBoard shows several runs together. A
 * second export replaces the first.
 */
export function writeTensorBoard(runPath: string, outFolder: string): TensorBoardExport {
  const { run, status, metrics, messages } = readRun(runPath);
  const name = basename(resolve(runPath));
  const { buckets, messages: stepMessages } = readBuckets(runPath);
  const startedMs = run ? Date.parse(run.started) : Number.NaN;
  const startMs = Number.isFinite(startedMs) ? startedMs : (buckets[0]?.time ?? 0);
  const writer = new EventFileWriter(join(outFolder, name), {
    ...{ startMs, host: run?.host ?? "unknown", pid: status?.pid ?? 0 },
  });
  let points = 0;
  const add: AddPoint = (tag, step, value, timeMs) => {
    if (value === undefined || !Number.isFinite(value) || !isCount(step)) return;
    writer.scalar(tag, step, value, Number.isFinite(timeMs) ? timeMs : startMs);
    points++;
  };
  try {
    for (const bucket of buckets) addSteps(add, bucket);
    for (const record of metrics) addMetrics(add, record, timeOf(buckets, Number(record["step"]), startMs));
  } finally {
    writer.close();
  }
  return { path: writer.path, points, messages: [...messages, ...stepMessages] };
}

export type AddPoint = (tag: string, step: number, value: number | undefined, timeMs: number) => void;

function readBuckets(runPath: string): {
  readonly buckets: readonly StepBucket[];
  readonly messages: readonly string[];
} {
  const path = join(runPath, inspectionFiles.steps);
  if (!existsSync(path)) return { buckets: [], messages: ["The run has no step log."] };
  try {
    const to = countSteps(path);
    const buckets = bucketSteps(path, { from: 0, to, maxBuckets: maxPoints });
    const perPoint = buckets[0]?.rows ?? 1;
    const thinned =
      perPoint > 1
        ? [
            `${to} steps are ${buckets.length} points of ${perPoint} steps, with their mean, min. and max. loss.`,
          ]
        : [];
    return { buckets, messages: thinned };
  } catch (error) {
    return { buckets: [], messages: [error instanceof Error ? error.message : String(error)] };
  }
}

function addSteps(add: AddPoint, bucket: StepBucket): void {
  const { rows, lastStep, endTime, loss, lr, samplesPerSecond } = bucket;
  add("train/loss", lastStep, loss?.mean, endTime);
  if (rows > 1) {
    add("train/loss_min", lastStep, loss?.min, endTime);
    add("train/loss_max", lastStep, loss?.max, endTime);
  }
  add("train/lr", lastStep, lr, endTime);
  add("train/samples_per_second", lastStep, samplesPerSecond, endTime);
}

/** Figures of epochs are plotted by epoch, one curve per fold; those of tests by fold, and those of evaluations by step. */
export function addMetrics(add: AddPoint, record: JsonRecord, timeMs: number): void {
  const { fold = 0, epoch, step, test, evaluation, ...figures } = record;
  if (!isCount(fold)) return;
  if (isCount(epoch)) {
    for (const [figure, value] of numbersOf(figures))
      add(`epoch/${figure}/fold_${fold}`, epoch, value, timeMs);
  }
  if (typeof test === "object" && test !== null) {
    for (const [figure, value] of numbersOf(test)) add(`test/${figure}`, fold, value, timeMs);
  }
  if (typeof evaluation === "object" && evaluation !== null && isCount(step)) {
    for (const [figure, value] of numbersOf(evaluation)) add(`evaluation/${figure}`, step, value, timeMs);
  }
}

function isCount(value: unknown): value is number {
  return Number.isSafeInteger(value) && Number(value) >= 0;
}

function numbersOf(figures: object): [string, number][] {
  return Object.entries(figures).filter((entry): entry is [string, number] => typeof entry[1] === "number");
}

/** The approximate time of a step, from the points. */
function timeOf(buckets: readonly StepBucket[], step: number, fallback: number): number {
  return (buckets.find(({ lastStep }) => lastStep >= step) ?? buckets.at(-1))?.endTime ?? fallback;
}
