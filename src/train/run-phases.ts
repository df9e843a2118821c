/**
 * The phases of a run between its steps, with the limits after which a probe reports a stall. These limits are for probes, which
 * see only the run's folder; the watchdog observes every device call.
 */

import type { RunPhase } from "../records/index.js";

const minute = 60_000;

interface PhaseLimits {
  /** Max. time without a heartbeat, in milliseconds. The probe's own limit applies if it is longer. */
  readonly maxSilenceMs: number;
  /** Max. duration of the phase, in milliseconds. */
  readonly maxDurationMs: number;
}

export const runPhases: Readonly<Record<RunPhase, PhaseLimits>> = {
  /** There is a heartbeat per chunk, so the default limit is enough. */
  "preparing features": { maxSilenceMs: 0, maxDurationMs: 120 * minute },
  /** A single call, without a heartbeat. */
  "preparing a fold": { maxSilenceMs: 10 * minute, maxDurationMs: 10 * minute },
  compiling: { maxSilenceMs: 10 * minute, maxDurationMs: 10 * minute },
  /** There is a heartbeat per batch; the first batch includes a compilation. */
  testing: { maxSilenceMs: 10 * minute, maxDurationMs: 120 * minute },
  evaluating: { maxSilenceMs: 10 * minute, maxDurationMs: 120 * minute },
  /** The first texts include a compilation. */
  "writing samples": { maxSilenceMs: 10 * minute, maxDurationMs: 10 * minute },
  "saving the model": { maxSilenceMs: 30 * minute, maxDurationMs: 30 * minute },
};

/** The limits of a phase, or of steps. An unknown phase has the limits of steps. */
export function limitsIn(phase: string | undefined, limitMs: number): PhaseLimits {
  const isKnown = phase !== undefined && Object.hasOwn(runPhases, phase);
  const { maxSilenceMs, maxDurationMs } = isKnown
    ? runPhases[phase as RunPhase]
    : { maxSilenceMs: 0, maxDurationMs: 0 };
  return {
    maxSilenceMs: Math.max(limitMs, maxSilenceMs),
    maxDurationMs: Math.max(limitMs, maxDurationMs),
  };
}
