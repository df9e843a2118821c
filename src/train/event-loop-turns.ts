/** Lets the event loop run during a training, so that signal handlers and timers are not delayed by its steps. */

import { setImmediate } from "node:timers/promises";

/** Max. time between two turns of the event loop, in milliseconds. */
const maxIntervalMs = 50;

export class EventLoopTurns {
  #lastMs = performance.now();

  /** Runs the event loop if it is due. The time carries over between epochs, because many are shorter than the interval. */
  async takeIfDue(): Promise<void> {
    if (performance.now() - this.#lastMs <= maxIntervalMs) return;
    // Signal handlers and timers may run after the first immediate, but always before the second.
    await setImmediate();
    await setImmediate();
    this.#lastMs = performance.now();
  }
}
