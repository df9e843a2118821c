/**
 * The quality of predictions, from the metrics and the results. Other jobs write other figures: missing ones are omitted without an
 * error.
 */

import type { JsonRecord } from "../wire.js";

export interface Predictions {
  readonly accuracy: number;
  /** The accuracy of always predicting the most frequent class. */
  readonly majority: number | undefined;
  readonly loss: number | undefined;
  /** By label, then by prediction. */
  readonly confusion: readonly (readonly number[])[] | undefined;
}

export interface EpochPoint {
  readonly fold: number;
  readonly epoch: number;
  readonly step: number | undefined;
  readonly loss: number | undefined;
  readonly accuracy: number | undefined;
  readonly samplesPerSecond: number | undefined;
  /** Including compilation. */
  readonly seconds: number | undefined;
}

export interface FoldPredictions extends Predictions {
  readonly fold: number;
  /** For each time scale, in minutes. */
  readonly scales: readonly (Predictions & { readonly minutes: number })[];
}

/** All epochs in the metrics, in order. */
export function epochsOf(metrics: readonly JsonRecord[]): EpochPoint[] {
  return metrics.flatMap((record) => {
    const epoch = numberOf(record["epoch"]);
    if (epoch === undefined) return [];
    const figures = recordOf(record["figures"]) ?? {};
    return [
      {
        fold: numberOf(record["fold"]) ?? 0,
        epoch,
        step: numberOf(record["step"]),
        loss: numberOf(record["loss"]),
        accuracy: numberOf(record["accuracy"]) ?? numberOf(figures["accuracy"]),
        samplesPerSecond: numberOf(record["samplesPerSecond"]),
        seconds: numberOf(record["seconds"]),
      },
    ];
  });
}

/** The tests of all folds: from the results, or from the metrics before the results exist. */
export function foldsOf(
  metrics: readonly JsonRecord[],
  results: JsonRecord | null | undefined,
): FoldPredictions[] {
  const folds = new Map<number, FoldPredictions>();
  for (const record of metrics) {
    const test = predictionsOf(record["test"]);
    const fold = numberOf(record["fold"]) ?? 0;
    if (test) folds.set(fold, { ...test, fold, scales: [] });
  }
  for (const [index, entry] of listOf(results?.["folds"]).entries()) {
    const record = recordOf(entry) ?? {};
    const test = predictionsOf(record["test"]);
    const fold = numberOf(record["fold"]) ?? index;
    const scales = listOf(record["perScale"]).flatMap((scale) => {
      const minutes = numberOf(recordOf(scale)?.["minutes"]);
      const predictions = predictionsOf(scale);
      return predictions && minutes !== undefined ? [{ ...predictions, minutes }] : [];
    });
    if (test) folds.set(fold, { ...test, fold, scales });
  }
  return [...folds.values()].sort((a, b) => a.fold - b.fold);
}

/** The mean accuracy of each scale over the folds that have it. */
export function meanByScale(
  folds: readonly FoldPredictions[],
): { minutes: number; accuracy: number; majority: number | undefined }[] {
  const scales = new Map<number, { accuracy: number[]; majority: number[] }>();
  for (const { minutes, accuracy, majority } of folds.flatMap((fold) => fold.scales)) {
    const entry = scales.get(minutes) ?? { accuracy: [], majority: [] };
    entry.accuracy.push(accuracy);
    if (majority !== undefined) entry.majority.push(majority);
    scales.set(minutes, entry);
  }
  return [...scales]
    .map(([minutes, { accuracy, majority }]) => ({
      minutes,
      accuracy: mean(accuracy),
      majority: majority.length > 0 ? mean(majority) : undefined,
    }))
    .sort((a, b) => a.minutes - b.minutes);
}

/** The sum of confusion matrices; undefined if there is none or their sizes differ. */
export function sumConfusion(folds: readonly Pick<Predictions, "confusion">[]): number[][] | undefined {
  const matrices = folds.flatMap(({ confusion }) => (confusion ? [confusion] : []));
  const [first] = matrices;
  if (!first || matrices.some((matrix) => matrix.length !== first.length)) return undefined;
  return first.map((row, label) =>
    row.map((_, predicted) => matrices.reduce((sum, matrix) => sum + (matrix[label]?.[predicted] ?? 0), 0)),
  );
}

function mean(values: readonly number[]): number {
  return values.reduce((sum, value) => sum + value, 0) / values.length;
}

function predictionsOf(value: unknown): Predictions | undefined {
  const record = recordOf(value);
  const accuracy = numberOf(record?.["accuracy"]);
  if (!record || accuracy === undefined) return undefined;
  const confusion = listOf(record["confusion"]).map((row) =>
    listOf(row).map((count) => numberOf(count) ?? 0),
  );
  const isSquare = confusion.length > 0 && confusion.every((row) => row.length === confusion.length);
  return {
    accuracy,
    majority: numberOf(record["majority"]),
    loss: numberOf(record["loss"]),
    confusion: isSquare ? confusion : undefined,
  };
}

function recordOf(value: unknown): JsonRecord | undefined {
  return typeof value === "object" && value !== null && !Array.isArray(value)
    ? (value as JsonRecord)
    : undefined;
}

function listOf(value: unknown): readonly unknown[] {
  return Array.isArray(value) ? value : [];
}

function numberOf(value: unknown): number | undefined {
  return typeof value === "number" && Number.isFinite(value) ? value : undefined;
}
