/**
 * Walk-forward folds: the samples in equal blocks of time. Fold k trains on blocks 0 to k and is tested on block k + 1, so the test
 * always comes after the training data.
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
   * Min. bars between the last training sample and the first test sample; default: the longest horizon. With fewer, training and
   * test labels overlap in time.
   */
  readonly gap?: number;
}

/**
 * Splits samples into folds. Block b starts at sample ⌊b · count / (folds + 1)⌋, so the block sizes differ by at most
 * one. The gap is taken from the start of the test block, never from the training blocks. For example, 24,613 samples
 * in 2 folds train on 8,204 and 16,408. At a stride of 60, each test block loses 3 samples.
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

function requireWhole(value: number, min: number, name: string): void {
  if (Number.isInteger(value) && value >= min) return;
  const message = `The ${name} is ${value}. It must be a whole number, ${min} or more.`;
  throw new HoldfastError("BAD_ARGUMENT", message, { numbers: { value, min } });
}

function tooFew(count: number, folds: number, gap: number): HoldfastError {
  return new HoldfastError(
    "BAD_ARGUMENT",
    `${count} samples are too few for ${folds} folds with a gap of ${gap} bars: a test block would be empty. Use more bars, a smaller stride or fewer folds.`,
    { numbers: { count, folds, gap } },
  );
}
