/**
 * Groups rows of the step log into a limited number of buckets, for runs of any length. A bucket keeps the min., max. and mean loss,
 * so outliers stay visible.
 */

import { readSteps, type StepSeries } from "../../train/index.js";

/** One or more consecutive rows. */
export interface StepBucket {
  /** The number of rows, and their first and last step. */
  readonly rows: number;
  readonly firstStep: number;
  readonly lastStep: number;
  /** When the first and the last row were sent, in milliseconds since 1970. */
  readonly time: number;
  readonly endTime: number;
  /** Of the finite losses; undefined if there is none. */
  readonly loss?: { readonly mean: number; readonly min: number; readonly max: number } | undefined;
  /** Rows whose loss is not finite or unknown. */
  readonly notFinite: number;
  /** Of the last row. */
  readonly lr: number;
  readonly fold: number;
  readonly epoch: number;
  /** Sums. */
  readonly samples: number;
  readonly hostMs: number;
  /** Over the bucket, or over a tenth of a second if the bucket is shorter; undefined without earlier rows. */
  readonly samplesPerSecond?: number | undefined;
}

export interface BucketRange {
  /** The range of rows; `to` is exclusive. */
  readonly from: number;
  readonly to: number;
  /** Max. buckets. */
  readonly maxBuckets: number;
}

/** Rows in memory at a time. */
const chunkRows = 65_536;
/** Steps may be faster than the clock's resolution. */
const minSpanMs = 100;

/** Puts every row of the range into one bucket. */
export function bucketSteps(path: string, { from, to, maxBuckets }: BucketRange): StepBucket[] {
  const perBucket = Math.max(1, Math.ceil((to - from) / Math.max(1, maxBuckets)));
  const perChunk = Math.max(1, Math.floor(chunkRows / perBucket)) * perBucket;
  const buckets: StepBucket[] = [];
  const rates = new RateMeter();
  if (from > 0) rates.begin(readSteps(path, { from: from - 1, to: from }).time[0]);
  for (let at = from; at < to; at += perChunk) {
    const series = readSteps(path, { from: at, to: Math.min(to, at + perChunk) });
    const count = series.step.length;
    for (let row = 0; row < count; row += perBucket)
      buckets.push(bucketOf(series, row, Math.min(count, row + perBucket), rates));
    // The log is shorter: a resumed run has cut it.
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

/** Samples per second, over the shortest span that the clock can measure. */
class RateMeter {
  /** Times and cumulative samples, oldest first; entries before index `#first` are no longer needed. */
  #sentAt: { readonly time: number; readonly sent: number }[] = [];
  #first = 0;
  #sent = 0;

  begin(time: number | undefined): void {
    if (time !== undefined) this.#sentAt.push({ time, sent: 0 });
  }

  after(time: number, samples: number): number | undefined {
    this.#sent += samples;
    // The nearest entry that is far enough in the past.
    while ((this.#sentAt[this.#first + 1]?.time ?? Infinity) <= time - minSpanMs) this.#first++;
    const before = this.#sentAt[this.#first];
    this.#sentAt.push({ time, sent: this.#sent });
    if (this.#first > chunkRows) {
      this.#sentAt = this.#sentAt.slice(this.#first);
      this.#first = 0;
    }
    if (!before || before.time >= time) return undefined;
    return ((this.#sent - before.sent) * 1000) / (time - before.time);
  }
}
