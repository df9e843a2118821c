/**
 * Standardises features to mean 0 and deviation 1, and clips outliers. The statistics belong to the model like its weights: they are
 * fitted on training rows only and saved in the checkpoint.
 */

import { HoldfastError } from "../../errors/index.js";
import type { SampleRange } from "./folds.js";
import { sampleWidth } from "./scales.js";

/**
 * The statistics, in float32 both when applied and when saved: a loaded normaliser gives the same bits. [12 · 193] each
 */
export interface Normaliser {
  readonly mean: Float32Array;
  readonly deviation: Float32Array;
}

/** Standardised features stay within ± this. */
export const clipLimit = 5;

const deviationFloor = 1e-8;

/**
 * Computes the mean and deviation of each feature over these rows of x [count, 12, 193], in two passes and float64. Other rows are
 * not read.
 *
 * ```js
 * const normaliser = fitNormaliser(samples.x, fold.train);
 * const x = applyNormaliser(normaliser, samples.x, new Float32Array(samples.x.length));
 * ```
 */
export function fitNormaliser(x: Float32Array, rows: SampleRange): Normaliser {
  requireWholeRows(x);
  requireRows(x.length / sampleWidth, rows);
  const count = rows.end - rows.start;
  const [start, end] = [rows.start * sampleWidth, rows.end * sampleWidth];

  const mean = new Float64Array(sampleWidth);
  for (let row = start; row < end; row += sampleWidth) {
    for (let feature = 0; feature < sampleWidth; feature++) {
      mean[feature] = (mean[feature] as number) + (x[row + feature] as number);
    }
  }
  for (let feature = 0; feature < sampleWidth; feature++) mean[feature] = (mean[feature] as number) / count;

  const squares = new Float64Array(sampleWidth);
  for (let row = start; row < end; row += sampleWidth) {
    for (let feature = 0; feature < sampleWidth; feature++) {
      const distance = (x[row + feature] as number) - (mean[feature] as number);
      squares[feature] = (squares[feature] as number) + distance * distance;
    }
  }
  const deviation = squares.map((sum) => Math.max(Math.sqrt(sum / count), deviationFloor));
  return normaliserFrom({ mean: Float32Array.from(mean), deviation: Float32Array.from(deviation) });
}

/**
 * Writes the standardised and clipped features of whole samples to `target`, which may be x itself, and returns it.
 *
 * ```js
 * applyNormaliser(normaliser, samples.x); // in place
 * ```
 */
export function applyNormaliser(
  { mean, deviation }: Normaliser,
  x: Float32Array,
  target: Float32Array = x,
): Float32Array {
  requireWholeRows(x);
  if (target.length !== x.length) {
    const message = `The target has ${target.length} numbers for ${x.length} features. Both must have the same length.`;
    throw new HoldfastError("BAD_ARGUMENT", message, { numbers: { target: target.length, x: x.length } });
  }
  for (let row = 0; row < x.length; row += sampleWidth) {
    for (let feature = 0; feature < sampleWidth; feature++) {
      const distance = (x[row + feature] as number) - (mean[feature] as number);
      const standardised = distance / (deviation[feature] as number);
      target[row + feature] = Math.max(-clipLimit, Math.min(clipLimit, standardised));
    }
  }
  return target;
}

/** A normaliser as the named arrays of a checkpoint. */
export function normaliserRecord({
  mean,
  deviation,
}: Normaliser): Record<"mean" | "deviation", Float32Array> {
  return { mean: mean.slice(), deviation: deviation.slice() };
}

/**
 * A normaliser from the arrays of a checkpoint. Throws if they do not fit the features.
 *
 * ```js
 * normaliserFrom(normaliserRecord(normaliser)); // gives the same bits as normaliser
 * ```
 */
export function normaliserFrom(record: Readonly<Record<string, Float32Array>>): Normaliser {
  const mean = statistic(record, "mean", Number.isFinite, "a finite number");
  const isDeviation = (value: number) => value > 0 && Number.isFinite(value);
  const deviation = statistic(record, "deviation", isDeviation, "a positive number");
  return { mean, deviation };
}

function statistic(
  record: Readonly<Record<string, Float32Array>>,
  name: string,
  isGood: (value: number) => boolean,
  expected: string,
): Float32Array {
  const values = record[name];
  if (values?.length !== sampleWidth) {
    throw new HoldfastError(
      "BAD_STATE",
      `The normaliser's ${name} has ${values?.length ?? "no"} numbers, expected ${sampleWidth}: one per feature. Use the checkpoint of a model that was trained on these features.`,
      { numbers: { name, length: values?.length ?? 0, expected: sampleWidth } },
    );
  }
  const feature = values.findIndex((value) => !isGood(value));
  if (feature >= 0) {
    const value = values[feature] as number;
    throw new HoldfastError(
      "NOT_FINITE",
      `The normaliser's ${name} of feature ${feature} is ${value}. It must be ${expected}. Check this feature of the training rows for NaN or infinity.`,
      { numbers: { name, feature, value } },
    );
  }
  return values.slice();
}

function requireWholeRows(x: Float32Array): void {
  if (x.length % sampleWidth === 0) return;
  const message = `${x.length} features are not a whole number of samples of ${sampleWidth} features. Pass whole samples.`;
  throw new HoldfastError("BAD_ARGUMENT", message, { numbers: { length: x.length, sampleWidth } });
}

function requireRows(count: number, { start, end }: SampleRange): void {
  const isRange = Number.isInteger(start) && Number.isInteger(end);
  if (isRange && 0 <= start && start < end && end <= count) return;
  const message = `Rows ${start} to ${end} of ${count} are not a valid range. Pass a range of at least one row.`;
  throw new HoldfastError("BAD_ARGUMENT", message, { numbers: { start, end, count } });
}
