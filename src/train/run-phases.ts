/**
 * What a run does where it makes no steps, and how long each may take before a probe calls the run stalled. The watchdog looks
 * closer, at every call of the device; these limits are for probes, which see only the run's folder.
 */

import type { RunPhase } from "../records/index.js";

const minute = 60_000;

interface PhaseLimits {
  /** How long nothing may be heard, in milliseconds; the probe's own limit counts where it is longer. */
  readonly silentMs: number;
  /** How long the phase may last. */
  readonly lastingMs: number;
}

export const runPhases: Readonly<Record<RunPhase, PhaseLimits>> = {
  /** The heart beats from chunk to chunk, so the usual silence is long enough. */
  "preparing features": { silentMs: 0, lastingMs: 120 * minute },
  /** One call each: nothing can be told before it has ended. */
  "preparing a fold": { silentMs: 10 * minute, lastingMs: 10 * minute },
  compiling: { silentMs: 10 * minute, lastingMs: 10 * minute },
  /** The heart beats from batch to batch; the first of them is compiled. */
  testing: { silentMs: 10 * minute, lastingMs: 120 * minute },
};

/** What a run is allowed while it is in a phase, or makes steps. A phase that is not in the table is allowed nothing more. */
export function limitsIn(phase: string | undefined, limitMs: number): PhaseLimits {
  const isKnown = phase !== undefined && Object.hasOwn(runPhases, phase);
  const { silentMs, lastingMs } = isKnown ? runPhases[phase as RunPhase] : { silentMs: 0, lastingMs: 0 };
  return { silentMs: Math.max(limitMs, silentMs), lastingMs: Math.max(limitMs, lastingMs) };
}
