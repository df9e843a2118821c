/** Durations in text form (`30s`, `500ms`, `2m`), and clocks. */

import { HoldfastError } from "../errors/index.js";

const factors = { ms: 1, s: 1000, m: 60_000, h: 3_600_000 } as const;

/**
 * Parses a duration into milliseconds.
 *
 * @example
 * ```ts
 * import { parseDuration } from "holdfast";
 * console.log(parseDuration("1.5s")); // → 1500
 * ```
 */
export function parseDuration(text: string): number {
  const match = /^(\d+(?:\.\d+)?)\s?(ms|s|m|h)$/.exec(text.trim());
  const suffix = match?.[2] as keyof typeof factors | undefined;
  const elapsedMs = match && suffix ? Number(match[1]) * factors[suffix] : Number.NaN;
  if (!Number.isFinite(elapsedMs) || elapsedMs <= 0) {
    throw new HoldfastError(
      "BAD_SETTING",
      `"${text}" is not a duration. Write a positive number with its unit, such as 500ms, 30s or 2m.`,
      { numbers: { text } },
    );
  }
  return elapsedMs;
}

/** Formats milliseconds so that `parseDuration` can read them. */
export function formatDuration(elapsedMs: number): string {
  if (elapsedMs < 1000) return `${Number(elapsedMs.toFixed(elapsedMs < 10 ? 2 : 0))}ms`;
  if (elapsedMs < 120_000) return `${Number((elapsedMs / 1000).toFixed(1))}s`;
  return `${Number((elapsedMs / 60_000).toFixed(1))}m`;
}

/** Returns the time in milliseconds. The system's clock is monotonic and the same in every thread and process. */
export interface Clock {
  nowMs(): number;
}

/**
 * `performance.now()` is three times cheaper than hrtime but counts from the thread's start; this offset gives all
 * threads one origin.
 */
const originMs = Number(process.hrtime.bigint()) / 1e6 - performance.now();

export const systemClock: Clock = { nowMs: () => originMs + performance.now() };

/** A clock that stands still until it is advanced; it notifies its listeners of each tick. */
export class FakeClock implements Clock {
  #nowMs = 0;
  readonly #listeners = new Set<() => void>();

  nowMs(): number {
    return this.#nowMs;
  }

  /** Advances time in small ticks, so that listeners see every quarter of a second. */
  advance(elapsedMs: number, tickMs = 250): void {
    const end = this.#nowMs + elapsedMs;
    while (this.#nowMs < end) {
      this.#nowMs = Math.min(end, this.#nowMs + tickMs);
      for (const listener of this.#listeners) listener();
    }
  }

  onTick(listener: () => void): void {
    this.#listeners.add(listener);
  }
}
