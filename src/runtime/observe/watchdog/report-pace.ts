/**
 * Limits how often stalls are reported if the process keeps running: the first two at once, then at doubling intervals
 * up to an hour. Otherwise a program whose every step exceeds the limit would fill its terminal and its disk.
 */

const maxIntervalMs = 3_600_000;

export class ReportPace {
  #intervalMs: number;
  #nextMs = Number.NEGATIVE_INFINITY;
  #leftOut = 0;

  /** `firstMs`: the minimum time between two reports. */
  constructor(firstMs: number) {
    this.#intervalMs = firstMs;
  }

  /** True if a stall may be reported now. Counts those that may not. */
  allows(nowMs: number): boolean {
    if (nowMs < this.#nextMs) {
      this.#leftOut++;
      return false;
    }
    this.#nextMs = nowMs + this.#intervalMs;
    this.#intervalMs = Math.min(2 * this.#intervalMs, maxIntervalMs);
    return true;
  }

  /** The number of stalls omitted since the last report; resets the count. */
  takeOmitted(): number {
    const count = this.#leftOut;
    this.#leftOut = 0;
    return count;
  }
}
