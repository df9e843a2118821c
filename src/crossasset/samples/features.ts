/**
 * Samples: the model's inputs and labels. A sample belongs to a bar and covers every scale. Its features use that bar and earlier
 * ones only; its labels use later bars.
 *
 * The features are raw; `normaliser.ts` standardises them with statistics of the training data.
 */

import { HoldfastError } from "../../errors/index.js";
import type { Bars } from "../bars/bars.js";
import { emptyGroups, type Groups, readGroups } from "./groups.js";
import {
  classes,
  featureCount,
  featuresPerGroup,
  groupCount,
  historyBars,
  kappa,
  longestHorizon,
  sampleWidth,
  scales,
} from "./scales.js";
import { requireUsableBars } from "./usable-bars.js";

/** Samples in time order. */
export interface Samples {
  readonly count: number;
  /** The bar of each sample: the last one that its features use. [count] */
  readonly bar: Int32Array;
  /** That bar's time. [count] */
  readonly time: Float64Array;
  /** The raw features. [count, 12, 193], row-major */
  readonly x: Float32Array;
  /** 0 long, 1 short, 2 flat; −1 if the bars end before the label's time. [count, 12] */
  readonly labels: Int32Array;
}

export interface SampleSettings {
  /** Bars between two samples; default: 60. */
  readonly stride?: number;
  /** Only samples whose labels are known; default: true. False for predictions. */
  readonly labelled?: boolean;
  /** Called regularly while samples are made: this may take minutes and blocks the event loop. */
  readonly onProgress?: (samples: number) => void;
}

export const defaultStride = 60;

/** Samples between two calls of onProgress: some tens of milliseconds. */
const chunk = 256;

/** The label of a sample whose horizon is after the last bar. */
const noLabel = -1;

/** The min. σ and the min. deviation of volumes: the divisor of constant series. */
const deviationFloor = 1e-8;

/**
 * Makes the samples of a series of bars. The first sample is at bar 7,688 (counted from 0), the first with 33 groups of 233 bars for
 * the longest scale. The others follow every `stride` bars, as long as 233 later bars exist for the labels.
 *
 * ```js
 * const samples = makeSamples(bars, { stride: 60 });
 * samples.x.subarray(0, 193); // the first sample's features on the scale of one minute
 * ```
 */
export function makeSamples(
  bars: Bars,
  { stride = defaultStride, labelled = true, onProgress }: SampleSettings = {},
): Samples {
  requireUsableBars(bars);
  const count = requireSamples(bars.close.length, stride, labelled ? longestHorizon : 0);
  const bar = Int32Array.from({ length: count }, (_, index) => historyBars - 1 + index * stride);
  const time = Float64Array.from(bar, (at) => bars.time[at] as number);
  const x = makeRows(count, stride);
  const labels = new Int32Array(count * scales.length);
  const groups = emptyGroups();
  let row = 0;
  for (const [index, at] of bar.entries()) {
    if (index % chunk === 0) onProgress?.(index);
    for (const scale of scales) {
      readGroups(bars, at, scale, groups);
      const sigma = writeFeatures(groups, x, row * featureCount);
      labels[row++] = labelOf(bars.close, at, scale, sigma);
    }
  }
  return { count, bar, time, x, labels };
}

/** The number of samples in a number of bars, each with its history and its horizon. Throws if there is none. */
function requireSamples(bars: number, stride: number, horizon: number): number {
  const count = countSamples(bars, stride, horizon);
  if (count > 0) return count;
  const needed = historyBars + horizon;
  throw new HoldfastError(
    "BAD_ARGUMENT",
    `${bars} bars are too few: a sample needs ${needed}, ${historyBars} of history and ${horizon} after it. Use more bars.`,
    { numbers: { bars, needed, historyBars, horizon } },
  );
}

/** The number of samples; 0 if there is none. */
export function countSamples(bars: number, stride: number, horizon: number = longestHorizon): number {
  if (!Number.isInteger(stride) || stride < 1) {
    const message = `The stride is ${stride}. It must be a whole number of bars, 1 or more.`;
    throw new HoldfastError("BAD_ARGUMENT", message, { numbers: { stride } });
  }
  const spareBars = bars - historyBars - horizon;
  return spareBars < 0 ? 0 : Math.floor(spareBars / stride) + 1;
}

function makeRows(count: number, stride: number): Float32Array {
  try {
    return new Float32Array(count * sampleWidth);
  } catch (cause) {
    const bytes = count * sampleWidth * Float32Array.BYTES_PER_ELEMENT;
    throw new HoldfastError(
      "BAD_ARGUMENT",
      `${count} samples at a stride of ${stride} need ${bytes} bytes, more than this Node.js can allocate. Use a larger stride or fewer bars.`,
      { numbers: { count, stride, bytes }, cause },
    );
  }
}

// Scratch memory of writeFeatures, to avoid an allocation per call.
const returns = new Float64Array(groupCount);
const logVolumes = new Float64Array(groupCount);

/** Writes the 193 features of one scale at `offset` and returns σ. */
function writeFeatures(groups: Groups, x: Float32Array, offset: number): number {
  const { open, high, low, close, volume, vwap } = groups;
  for (let group = 0; group < groupCount; group++) {
    returns[group] = Math.log((close[group + 1] as number) / (close[group] as number));
    logVolumes[group] = Math.log1p(volume[group] as number);
  }
  const sigma = meanAndDeviation(returns).deviation;
  const volumes = meanAndDeviation(logVolumes);
  for (let group = 0; group < groupCount; group++) {
    const at = offset + group * featuresPerGroup;
    const top = high[group] as number;
    const bottom = low[group] as number;
    const end = close[group + 1] as number;
    x[at] = (returns[group] as number) / sigma;
    x[at + 1] = Math.log(top / bottom) / sigma;
    x[at + 2] = Math.log(end / (open[group] as number)) / sigma;
    x[at + 3] = top > bottom ? (2 * (end - bottom)) / (top - bottom) - 1 : 0;
    x[at + 4] = ((logVolumes[group] as number) - volumes.mean) / volumes.deviation;
    x[at + 5] = Math.log(end / (vwap[group] as number)) / sigma;
  }
  x[offset + featureCount - 1] = Math.log(sigma);
  return sigma;
}

/** Mean and population standard deviation (divided by n). */
function meanAndDeviation(values: Float64Array): { readonly mean: number; readonly deviation: number } {
  let sum = 0;
  for (let index = 0; index < values.length; index++) sum += values[index] as number;
  const mean = sum / values.length;
  let squares = 0;
  for (let index = 0; index < values.length; index++) squares += ((values[index] as number) - mean) ** 2;
  return { mean, deviation: Math.max(Math.sqrt(squares / values.length), deviationFloor) };
}

function labelOf(close: Float64Array, bar: number, scale: number, sigma: number): number {
  if (bar + scale >= close.length) return noLabel;
  const move = Math.log((close[bar + scale] as number) / (close[bar] as number));
  if (move > kappa * sigma) return classes.long;
  return move < -kappa * sigma ? classes.short : classes.flat;
}
