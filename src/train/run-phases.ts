/**
 * The phases of a run between its steps, with the limits after which a probe reports a stall. These limits are for probes, which
 * see only the run's folder; the watchdog observes every device call.
 */

import type { RunPhase } from "../records/index.js";

const minute = 60_000;

interface PhaseLimits {
  /** Max. time without a heartbeat, in milliseconds. The probe's own limit applies if it is longer. */
  readonly silentMs: number;
  /** Max. duration of the phase. */
  readonly lastingMs: number;
}

export const runPhases: Readonly<Record<RunPhase, PhaseLimits>> = {
  /** There is a heartbeat per chunk, so the default limit is enough. */
  "preparing features": { silentMs: 0, lastingMs: 120 * minute },
  /** A single call, without a heartbeat. */
  "preparing a fold": { silentMs: 10 * minute, lastingMs: 10 * minute },
  compiling: { silentMs: 10 * minute, lastingMs: 10 * minute },
  /** There is a heartbeat per batch; the first batch includes a compilation. */
  testing: { silentMs: 10 * minute, lastingMs: 120 * minute },
};

/** The limits of a phase, or of steps. An unknown phase has the limits of steps. */
export function limitsIn(phase: string | undefined, limitMs: number): PhaseLimits {
  const isKnown = phase !== undefined && Object.hasOwn(runPhases, phase);
  const { silentMs, lastingMs } = isKnown ? runPhases[phase as RunPhase] : { silentMs: 0, lastingMs: 0 };
  return { silentMs: Math.max(limitMs, silentMs), lastingMs: Math.max(limitMs, lastingMs) };
}
