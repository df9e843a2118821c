/**
 * When a plan is audited: at its calls 2 to 8, at every power of two after that, and whenever a thousand times the duration of
 * the last audit has passed. So audits take about a thousandth of a long run.
 */

import { type Clock, systemClock } from "../../units/index.js";

/** Up to this call, every call is audited. */
const lastOfFirstCalls = 8;
/** Time between audits, as a multiple of the duration of one. */
const intervalFactor = 1000;

export class AuditTimes {
  readonly #clock: Clock;
  #calls = 0;
  #next = 2;
  #lastMs = 0;
  #durationMs = 0;

  constructor(clock: Clock = systemClock) {
    this.#clock = clock;
  }

  /** True if the next call must be audited. */
  isDue(): boolean {
    const call = this.#calls + 1;
    if (call < 2) return false;
    if (call >= this.#next) return true;
    return this.#durationMs > 0 && this.#clock.nowMs() - this.#lastMs > intervalFactor * this.#durationMs;
  }

  /** Runs and times an audit. An audit that throws stays due. */
  measure(audit: () => void): void {
    const startMs = this.#clock.nowMs();
    audit();
    this.#lastMs = this.#clock.nowMs();
    this.#durationMs = this.#lastMs - startMs;
    const call = this.#calls + 1;
    this.#next = call < lastOfFirstCalls ? call + 1 : 2 ** Math.ceil(Math.log2(call + 1));
  }

  noteCall(): void {
    this.#calls += 1;
  }
}
