/**
 * When a plan is audited: at its calls 2 to 8, at every power of two after that, and again when a thousand times the duration
 * of the last audit has passed, so that audits take about a thousandth of a long run.
 */

import { type Clock, systemClock } from "../../units/index.js";

const alwaysUpTo = 8;
const maxShare = 1000;

export class AuditTimes {
  readonly #clock: Clock;
  #calls = 0;
  #next = 2;
  #lastMs = 0;
  #tookMs = 0;

  constructor(clock: Clock = systemClock) {
    this.#clock = clock;
  }

  /** Is the coming call to be audited? */
  isDue(): boolean {
    const call = this.#calls + 1;
    if (call < 2) return false;
    if (call >= this.#next) return true;
    return this.#tookMs > 0 && this.#clock.nowMs() - this.#lastMs > maxShare * this.#tookMs;
  }

  /** Runs an audit. One that throws is due again. */
  measure(audit: () => void): void {
    const startMs = this.#clock.nowMs();
    audit();
    this.#lastMs = this.#clock.nowMs();
    this.#tookMs = this.#lastMs - startMs;
    const call = this.#calls + 1;
    this.#next = call < alwaysUpTo ? call + 1 : 2 ** Math.ceil(Math.log2(call + 1));
  }

  noteCall(): void {
    this.#calls += 1;
  }
}
