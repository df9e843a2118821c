/**
 * Samples per second during training: over the steps of an epoch, without compilation, tests and checkpoints. The terminal,
 * status.json, the metrics and the inspector all show this figure.
 */

/** The min. time for a useful measurement, in milliseconds. */
const minSpanMs = 1000;

export class Throughput {
  #startMs = 0;
  #samples = 0;
  #excludedMs = 0;
  /** The rate of the last completed epoch. */
  #lastEpochRate: number | undefined;

  beginEpoch(nowMs: number): void {
    this.#startMs = nowMs;
    this.#samples = 0;
    this.#excludedMs = 0;
  }

  /** Counts a step. */
  add(samples: number): void {
    this.#samples += samples;
  }

  /** Excludes a time span, such as a compilation. Its samples must not be added. */
  exclude(ms: number): void {
    this.#excludedMs += ms;
  }

  /** The epoch's rate; undefined if every step was compiled. */
  endEpoch(nowMs: number): number | undefined {
    const rate = this.#rateOfEpoch(nowMs);
    this.#lastEpochRate = rate ?? this.#lastEpochRate;
    this.#samples = 0;
    return rate;
  }

  /** The current epoch's rate so far; in its first second, the last epoch's rate. */
  rate(nowMs: number): number | undefined {
    const isLong = nowMs - this.#startMs - this.#excludedMs >= minSpanMs;
    const rate = this.#rateOfEpoch(nowMs);
    return isLong ? (rate ?? this.#lastEpochRate) : (this.#lastEpochRate ?? rate);
  }

  #rateOfEpoch(nowMs: number): number | undefined {
    const spanMs = nowMs - this.#startMs - this.#excludedMs;
    return this.#samples > 0 && spanMs > 0 ? (1000 * this.#samples) / spanMs : undefined;
  }
}
