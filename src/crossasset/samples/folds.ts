/**
 * Walk-forward folds: the samples in equal blocks of time. Fold k learns from the blocks 0 to k and is tested on block
 * k + 1, so that it is always tested on a time behind the one that it knows.
 */

import { HoldfastError } from "../../errors/index.js";
import type { Samples } from "./features.js";
import { longestHorizon } from "./scales.js";

/** Samples `start` to `end`, the end not included. */
export interface SampleRange {
  readonly start: number;
  readonly end: number;
}

export interface Fold {
  readonly train: SampleRange;
  readonly test: SampleRange;
}

export interface WalkForwardOptions {
  /**
   * The bars that lie at least between the last training sample and the first test sample; the longest horizon unless
   * given. With fewer, training labels tell of bars that test labels tell of too.
   */
  readonly gap?: number;
}

/**
 * Splits samples into folds. Block b begins at sample ⌊b · count / (folds + 1)⌋, so the blocks' sizes differ by one at
 * most. The gap is taken from the beginning of the test block, never from the training blocks: 24,613 samples in 2 folds
 * train on 8,204 and 16,408, and at a stride of 60 each test block loses 3 samples.
 *
 * ```js
 * const [first] = walkForward(samples, 2);
 * first.train; // { start: 0, end: 8204 }
 * first.test; // { start: 8207, end: 16408 }
 * ```
 */
export function walkForward(
  samples: Pick<Samples, "count" | "bar">,
  folds: number,
  { gap = longestHorizon }: WalkForwardOptions = {},
): Fold[] {
  requireWhole(folds, 1, "number of folds");
  requireWhole(gap, 0, "gap");
  const { count, bar } = samples;
  const blocks = folds + 1;
  if (count < blocks) throw tooFew(count, folds, gap);
  const startOf = (block: number) => Math.floor((block * count) / blocks);
  return Array.from({ length: folds }, (_, fold) => {
    const train = { start: 0, end: startOf(fold + 1) };
    const nearest = (bar[train.end - 1] as number) + gap;
    const end = startOf(fold + 2);
    let start = train.end;
    while (start < end && (bar[start] as number) < nearest) start++;
    if (start === end) throw tooFew(count, folds, gap);
    return { train, test: { start, end } };
  });
}

function requireWhole(value: number, least: number, what: string): void {
  if (Number.isInteger(value) && value >= least) return;
  const message = `The ${what} is ${value}; give a whole number from ${least} on.`;
  throw new HoldfastError("BAD_ARGUMENT", message, { numbers: { value, least } });
}

function tooFew(count: number, folds: number, gap: number): HoldfastError {
  return new HoldfastError(
    "BAD_ARGUMENT",
    `${count} samples are too few for ${folds} folds with a gap of ${gap} bars: a test block would be empty. Give more bars, a smaller stride or fewer folds.`,
    { numbers: { count, folds, gap } },
  );
}
