/**
 * Whether a training has diverged, judged from one epoch. A step whose gradients are not finite is skipped on the device; a few of
 * these do no harm. It has diverged if most steps were skipped, an update used a non-finite loss, or the evaluation's loss is
 * not finite.
 */

export interface EpochOutcome {
  /** The losses of the epoch's steps. */
  readonly losses: readonly number[];
  /** Steps of the epoch that the device skipped. */
  readonly skipped: number;
  /** What the evaluation gave; only its `loss` is looked at, as other figures may be undefined for reasons of their own. */
  readonly figures: Readonly<Record<string, number>>;
}

/** Why the training has diverged, as the end of a sentence; undefined where it has not. */
export function divergenceOf({ losses, skipped, figures }: EpochOutcome): string | undefined {
  const steps = losses.length;
  if (2 * skipped > steps)
    return `${skipped} of ${steps} steps were skipped, because a gradient was not finite`;
  const bad = losses.filter((loss) => !Number.isFinite(loss)).length;
  // A step with such a loss changes nothing where it is skipped; one that is not has spoilt the weights.
  if (bad > skipped) return `the loss was not finite in ${bad} of ${steps} steps`;
  const { loss } = figures;
  if (loss !== undefined && !Number.isFinite(loss)) return `the evaluation's loss is ${loss}`;
  return undefined;
}
