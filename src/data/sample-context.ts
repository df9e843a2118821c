/** What a loader tells a data set about a sample, so that random changes of samples depend only on the seed and the epoch. */

import { drawWords, type Seed, uniform } from "../kernels/index.js";

/** The loader's seed and epoch. */
export interface SampleContext {
  readonly seed: Seed;
  /** Counted from 0. */
  readonly epoch: number;
}

/** Random numbers of one sample. */
export interface SampleRandom {
  /** A number from 0 to 1, without 1. */
  uniform(): number;
  /** A whole number from 0 to limit − 1. */
  below(limit: number): number;
}

const wordsAtOnce = 16;

/** The random numbers of a sample in an epoch. */
export function randomOf({ seed, epoch }: SampleContext, index: number): SampleRandom {
  const id = (BigInt(epoch) << 32n) | BigInt(index);
  let words = new Uint32Array();
  let drawn = 0;
  const nextWord = (): number => {
    const at = drawn++ % wordsAtOnce;
    if (at === 0) words = drawWords({ seed, id, use: "samples" }, wordsAtOnce, drawn - 1);
    return words[at] ?? 0;
  };
  return {
    uniform: () => uniform(nextWord()),
    below: (limit) => Math.floor((nextWord() / 2 ** 32) * limit),
  };
}
