/**
 * Measures how long a thread was runnable without a processor. That time does not count as a stall. Only Linux reports
 * it; elsewhere it is 0.
 */

import { readFileSync } from "node:fs";

/** Returns the milliseconds a thread has waited since the last call. */
export class ProcessorWait {
  readonly #path: string | undefined;
  #waitedMs: number;

  constructor(pid: number, threadId: number | undefined, proc = "/proc") {
    this.#path = threadId === undefined ? undefined : `${proc}/${pid}/task/${threadId}/schedstat`;
    this.#waitedMs = this.#read();
  }

  tick(): number {
    const waitedMs = this.#read();
    const tickMs = Math.max(0, waitedMs - this.#waitedMs);
    this.#waitedMs = waitedMs;
    return tickMs;
  }

  /** The second figure is the wait in nanoseconds; it is updated when the thread gets a processor. */
  #read(): number {
    if (this.#path === undefined) return 0;
    try {
      const waited = Number(readFileSync(this.#path, "latin1").split(" ")[1]);
      return Number.isFinite(waited) ? waited / 1e6 : 0;
    } catch {
      return 0;
    }
  }
}
