/** A course of steps: the same batches from the same start, run eagerly or replayed, and what it has left behind. */

import type { SavedPoint, TimingCapture } from "./rehearsal.js";

/** Bytes between host and device. */
export interface Transferred {
  readonly up: number;
  readonly down: number;
}

export interface Course {
  readonly losses: readonly number[];
  readonly end: SavedPoint;
  readonly medianMs: number;
  /** For each step. */
  readonly bytes: Transferred;
}

/** Runs steps on their batches, each from where the one before it ended. */
export function runCourse(
  timingCapture: TimingCapture,
  start: SavedPoint,
  steps: number,
  run: () => void,
): Course {
  const { runtime } = timingCapture.device;
  timingCapture.restore(start);
  const before = runtime.diagnostics().transfers;
  const [losses, times]: [number[], number[]] = [[], []];
  for (let step = 0; step < steps; step++) {
    timingCapture.prepare(step);
    runtime.synchronize();
    const startedMs = performance.now();
    run();
    losses.push(timingCapture.readLoss());
    times.push(performance.now() - startedMs);
  }
  const after = runtime.diagnostics().transfers;
  const bytes = {
    up: (after.up.bytes - before.up.bytes) / steps,
    down: (after.down.bytes - before.down.bytes) / steps,
  };
  return { losses, end: timingCapture.save(), medianMs: medianOf(times), bytes };
}

function medianOf(values: readonly number[]): number {
  const sorted = values.toSorted((a, b) => a - b);
  const [low = 0, high = 0] = [sorted[Math.ceil(sorted.length / 2) - 1], sorted[sorted.length >> 1]];
  return (low + high) / 2;
}
