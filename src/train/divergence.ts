/**
 * Detects divergence after an epoch. The device skips a step if a gradient is not finite; a few skipped steps are harmless. A
 * training has diverged if most steps were skipped, an update used a non-finite loss, or the evaluation's loss is not finite.
 */

export interface EpochOutcome {
  /** The losses of the epoch's steps. */
  readonly losses: readonly number[];
  /** Steps of the epoch that the device skipped. */
  readonly skipped: number;
  /** The figures of the evaluation. Only `loss` is checked: other figures may be not finite for harmless reasons. */
  readonly figures: Readonly<Record<string, number>>;
}

/** Why the training has diverged, as the end of a sentence; undefined if it has not. */
export function divergenceOf({ losses, skipped, figures }: EpochOutcome): string | undefined {
  const steps = losses.length;
  if (2 * skipped > steps)
    return `${skipped} of ${steps} steps were skipped, because a gradient was not finite`;
  const bad = losses.filter((loss) => !Number.isFinite(loss)).length;
  // A skipped step with a bad loss changes nothing; any other has damaged the weights.
  if (bad > skipped) return `the loss was not finite in ${bad} of ${steps} steps`;
  const { loss } = figures;
  if (loss !== undefined && !Number.isFinite(loss)) return `the evaluation's loss is ${loss}`;
  return undefined;
}
