/** A run's curves as TensorBoard shows them: written from its files, after the run or while it goes on. */

import { existsSync } from "node:fs";
import { basename, join, resolve } from "node:path";
import type { JsonRecord } from "../../records/index.js";
import { countSteps, inspectionFiles, readRun } from "../../train/index.js";
import { EventFileWriter } from "./event-file.js";
import { bucketSteps, type StepBucket } from "./step-buckets.js";

/** TensorBoard draws a thousand or so of them anyway. */
const maxPoints = 10_000;

export interface TensorBoardExport {
  /** The event file. */
  readonly path: string;
  /** Points of all curves. */
  readonly points: number;
  /** What could not be read, and how steps were taken together. */
  readonly messages: readonly string[];
}

/**
 * Writes one event file, in a folder of the run's name in `outFolder`, so that TensorBoard shows several runs beside each other.
 * Written again, it replaces itself.
 */
export function writeTensorBoard(runPath: string, outFolder: string): TensorBoardExport {
  const { run, status, metrics, messages } = readRun(runPath);
  const name = basename(resolve(runPath));
  const { buckets, messages: stepMessages } = readBuckets(runPath);
  const startedMs = run ? Date.parse(run.started) : Number.NaN;
  const beginMs = Number.isFinite(startedMs) ? startedMs : (buckets[0]?.time ?? 0);
  const writer = new EventFileWriter(join(outFolder, name), {
    ...{ beginMs, host: run?.host ?? "unknown", pid: status?.pid ?? 0 },
  });
  let points = 0;
  const add: AddPoint = (tag, step, value, timeMs) => {
    if (value === undefined || !Number.isFinite(value) || !isCount(step)) return;
    writer.scalar(tag, step, value, Number.isFinite(timeMs) ? timeMs : beginMs);
    points++;
  };
  try {
    for (const bucket of buckets) addSteps(add, bucket);
    for (const record of metrics) addMetrics(add, record, timeOf(buckets, Number(record["step"]), beginMs));
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
    const buckets = bucketSteps(path, { from: 0, to, most: maxPoints });
    const perPoint = buckets[0]?.rows ?? 1;
    const thinned =
      perPoint > 1
        ? [
            `${to} steps are ${buckets.length} points of ${perPoint} steps, with the mean, least and greatest loss.`,
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

/** An epoch's figures stand at the epoch, a curve for each fold; those of a fold's test at the fold. */
export function addMetrics(add: AddPoint, record: JsonRecord, timeMs: number): void {
  const { fold = 0, epoch, step: _, test, ...figures } = record;
  if (!isCount(fold)) return;
  if (isCount(epoch)) {
    for (const [figure, value] of numbersOf(figures))
      add(`epoch/${figure}/fold_${fold}`, epoch, value, timeMs);
  }
  if (typeof test === "object" && test !== null) {
    for (const [figure, value] of numbersOf(test)) add(`test/${figure}`, fold, value, timeMs);
  }
}

function isCount(value: unknown): value is number {
  return Number.isSafeInteger(value) && Number(value) >= 0;
}

function numbersOf(figures: object): [string, number][] {
  return Object.entries(figures).filter((entry): entry is [string, number] => typeof entry[1] === "number");
}

/** When a step was sent, as near as the points tell it. */
function timeOf(buckets: readonly StepBucket[], step: number, otherwise: number): number {
  return (buckets.find(({ lastStep }) => lastStep >= step) ?? buckets.at(-1))?.endTime ?? otherwise;
}
