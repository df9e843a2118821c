/**
 * Time as a watcher has itself seen it pass: the sum of its own ticks, each counted only up to a limit. A process that is
 * stopped, a machine that sleeps and a clock that jumps add one such tick, however long they last: the watcher was not
 * there to see anything stand still.
 */

import type { Clock } from "../../../units/index.js";

export class WatchedTime {
  readonly #clock: Clock;
  readonly #maxTickMs: number;
  #lookedMs: number;

  constructor(clock: Clock, maxTickMs: number) {
    this.#clock = clock;
    this.#maxTickMs = maxTickMs;
    this.#lookedMs = clock.nowMs();
  }

  /** The time since the last call that counts. */
  tick(): number {
    const nowMs = this.#clock.nowMs();
    const elapsedMs = Math.min(Math.max(0, nowMs - this.#lookedMs), this.#maxTickMs);
    this.#lookedMs = nowMs;
    return elapsedMs;
  }
}
