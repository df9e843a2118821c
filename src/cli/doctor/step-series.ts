/** A series of training steps from a saved point, run eagerly or replayed: losses, times, transfers and the final state. */

import type { SavedPoint, TrialTraining } from "./trial-training.js";

/** Bytes copied between host and device. */
export interface Transferred {
  readonly up: number;
  readonly down: number;
}

export interface StepSeries {
  readonly losses: readonly number[];
  readonly end: SavedPoint;
  readonly medianMs: number;
  /** Per step. */
  readonly bytes: Transferred;
}

/** Restores the start and runs the steps, each on its own batch. */
export function runSteps(
  trial: TrialTraining,
  start: SavedPoint,
  steps: number,
  run: () => void,
): StepSeries {
  const { runtime } = trial.device;
  trial.restore(start);
  const before = runtime.diagnostics().transfers;
  const [losses, times]: [number[], number[]] = [[], []];
  for (let step = 0; step < steps; step++) {
    trial.prepare(step);
    runtime.synchronize();
    const startedMs = performance.now();
    run();
    losses.push(trial.readLoss());
    times.push(performance.now() - startedMs);
  }
  const after = runtime.diagnostics().transfers;
  const bytes = {
    up: (after.up.bytes - before.up.bytes) / steps,
    down: (after.down.bytes - before.down.bytes) / steps,
  };
  return { losses, end: trial.save(), medianMs: medianOf(times), bytes };
}

function medianOf(values: readonly number[]): number {
  const sorted = values.toSorted((a, b) => a - b);
  const [low = 0, high = 0] = [sorted[Math.ceil(sorted.length / 2) - 1], sorted[sorted.length >> 1]];
  return (low + high) / 2;
}
