/**
 * Rows of the step log taken together, so that a run of any length gives so many points and not more. Nothing is hidden: a
 * bucket keeps the least and the greatest loss beside the mean.
 */

import { readSteps, type StepSeries } from "../../train/index.js";

/** Some rows that follow each other, one at least. */
export interface StepBucket {
  /** How many rows, and their first and last step. */
  readonly rows: number;
  readonly firstStep: number;
  readonly lastStep: number;
  /** Milliseconds since 1970, when the first and the last were sent. */
  readonly time: number;
  readonly endTime: number;
  /** Of the losses that are finite; missing where none is. */
  readonly loss?: { readonly mean: number; readonly min: number; readonly max: number } | undefined;
  /** Rows whose loss is infinite or not known. */
  readonly notFinite: number;
  /** Of the last row. */
  readonly lr: number;
  readonly fold: number;
  readonly epoch: number;
  /** Sums. */
  readonly samples: number;
  readonly hostMs: number;
  /** Over the bucket, or over the tenth of a second before its end where it is shorter; missing where nothing came before. */
  readonly samplesPerSecond?: number | undefined;
}

export interface BucketRange {
  /** Rows from this one up to before that one. */
  readonly from: number;
  readonly to: number;
  /** So many buckets at most. */
  readonly most: number;
}

/** So many rows are in memory at a time. */
const chunkRows = 65_536;
/** Single steps may come faster than the clock tells them apart. */
const shortestMs = 100;

/** Every row of the range is in one bucket. */
export function bucketSteps(path: string, { from, to, most }: BucketRange): StepBucket[] {
  const perBucket = Math.max(1, Math.ceil((to - from) / Math.max(1, most)));
  const perChunk = Math.max(1, Math.floor(chunkRows / perBucket)) * perBucket;
  const buckets: StepBucket[] = [];
  const rates = new RateMeter();
  if (from > 0) rates.begin(readSteps(path, { from: from - 1, to: from }).time[0]);
  for (let at = from; at < to; at += perChunk) {
    const series = readSteps(path, { from: at, to: Math.min(to, at + perChunk) });
    const count = series.step.length;
    for (let row = 0; row < count; row += perBucket)
      buckets.push(bucketOf(series, row, Math.min(count, row + perBucket), rates));
    // Shorter than it was: a resume has cut it.
    if (count < Math.min(to, at + perChunk) - at) break;
  }
  return buckets;
}

function bucketOf(series: StepSeries, from: number, to: number, rates: RateMeter): StepBucket {
  let [sum, min, max, finite, samples, hostMs] = [0, Infinity, -Infinity, 0, 0, 0];
  for (let row = from; row < to; row++) {
    const loss = series.loss[row] ?? Number.NaN;
    if (Number.isFinite(loss)) {
      sum += loss;
      min = Math.min(min, loss);
      max = Math.max(max, loss);
      finite++;
    }
    samples += series.samples[row] ?? 0;
    hostMs += series.hostMs[row] ?? 0;
  }
  const last = (column: keyof StepSeries): number => series[column][to - 1] ?? 0;
  const endTime = last("time");
  return {
    rows: to - from,
    firstStep: series.step[from] ?? 0,
    lastStep: last("step"),
    time: series.time[from] ?? 0,
    endTime,
    loss: finite > 0 ? { mean: sum / finite, min, max } : undefined,
    notFinite: to - from - finite,
    lr: last("lr"),
    fold: last("fold"),
    epoch: last("epoch"),
    samples,
    hostMs,
    samplesPerSecond: rates.after(endTime, samples),
  };
}

/** Samples over time, over the shortest span that the clock can measure. */
class RateMeter {
  /** Times, and the samples that had been sent by then, oldest first; those before `#nearest` are not needed any more. */
  #marks: { readonly time: number; readonly sent: number }[] = [];
  #nearest = 0;
  #sent = 0;

  begin(time: number | undefined): void {
    if (time !== undefined) this.#marks.push({ time, sent: 0 });
  }

  after(time: number, samples: number): number | undefined {
    this.#sent += samples;
    // Of the marks that lie far enough back, the nearest.
    while ((this.#marks[this.#nearest + 1]?.time ?? Infinity) <= time - shortestMs) this.#nearest++;
    const before = this.#marks[this.#nearest];
    this.#marks.push({ time, sent: this.#sent });
    if (this.#nearest > chunkRows) {
      this.#marks = this.#marks.slice(this.#nearest);
      this.#nearest = 0;
    }
    if (!before || before.time >= time) return undefined;
    return ((this.#sent - before.sent) * 1000) / (time - before.time);
  }
}
