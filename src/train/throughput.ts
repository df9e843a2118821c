/**
 * Samples a second while a model trains: over the steps of an epoch, without calls that make a plan, tests and checkpoints
 * between epochs. The one figure that the terminal, status.json, the metrics and the inspector show.
 */

/** A part of an epoch that is shorter than this says more of the clock than of the training, in milliseconds. */
const shortestPartMs = 1000;

export class Throughput {
  #beganMs = 0;
  #samples = 0;
  #excludedMs = 0;
  /** Of the last epoch that ended. */
  #ofLastEpoch: number | undefined;

  beginEpoch(nowMs: number): void {
    this.#beganMs = nowMs;
    this.#samples = 0;
    this.#excludedMs = 0;
  }

  /** Counts a step. */
  add(samples: number): void {
    this.#samples += samples;
  }

  /** Leaves a time out, whose samples are not counted either: a call that makes a plan takes longer than a step. */
  exclude(ms: number): void {
    this.#excludedMs += ms;
  }

  /** The epoch's figure; undefined where every step made a plan. */
  endEpoch(nowMs: number): number | undefined {
    const rate = this.#rateOfEpoch(nowMs);
    this.#ofLastEpoch = rate ?? this.#ofLastEpoch;
    this.#samples = 0;
    return rate;
  }

  /** The present epoch's figure so far, or the last one's until this one has lasted a second. */
  rate(nowMs: number): number | undefined {
    const isLong = nowMs - this.#beganMs - this.#excludedMs >= shortestPartMs;
    const rate = this.#rateOfEpoch(nowMs);
    return isLong ? (rate ?? this.#ofLastEpoch) : (this.#ofLastEpoch ?? rate);
  }

  #rateOfEpoch(nowMs: number): number | undefined {
    const spanMs = nowMs - this.#beganMs - this.#excludedMs;
    return this.#samples > 0 && spanMs > 0 ? (1000 * this.#samples) / spanMs : undefined;
  }
}
