/**
 * Time as a watcher has observed it: the sum of its ticks, each counted up to a limit. A stopped process, a sleeping
 * machine or a clock that jumps adds at most one such tick.
 */

import type { Clock } from "../../../units/index.js";

/** How often a watcher checks: short enough to report a stall soon after its limit. */
export function checkIntervalMs(stallAfterMs: number): number {
  return Math.min(stallAfterMs / 4, 250);
}

export class WatchedTime {
  readonly #clock: Clock;
  readonly #maxTickMs: number;
  #checkedMs: number;

  constructor(clock: Clock, maxTickMs: number) {
    this.#clock = clock;
    this.#maxTickMs = maxTickMs;
    this.#checkedMs = clock.nowMs();
  }

  /** The time to count since the last call. */
  tick(): number {
    const nowMs = this.#clock.nowMs();
    const elapsedMs = Math.min(Math.max(0, nowMs - this.#checkedMs), this.#maxTickMs);
    this.#checkedMs = nowMs;
    return elapsedMs;
  }
}
