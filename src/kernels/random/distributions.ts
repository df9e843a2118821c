/** Distributions from random numbers, by integers and exact arithmetic only, so that CPU and GPU agree in every bit. The reference for kernels. */

import { HoldfastError } from "../../errors/index.js";

/** A call of Philox gives four words, which are eight 16-bit numbers of a draw. */
export const numbersPerCall = 8;

/** The threshold above every number of a draw. It has 17 bits, so kernels with a 16-bit threshold are not launched for it. */
export const keepAll = 2 ** 16;

/** A float32 in [0, 1): the word's upper 24 bits as a fraction, which float32 holds exactly. */
export function uniform(word: number): number {
  return (word >>> 8) * 2 ** -24;
}

/**
 * The threshold below which a number of a draw means "keep": round(probability · 2¹⁶), from 0 (never) to `keepAll`. Comparing
 * integers involves no rounding; comparing fractions with a float32 probability would.
 *
 * ```js
 * thresholdOf(0.5); // 32768
 * thresholdOf(1) === keepAll; // true
 * ```
 */
export function thresholdOf(keepProbability: number): number {
  if (!(keepProbability >= 0 && keepProbability <= 1)) {
    throw new HoldfastError(
      "BAD_ARGUMENT",
      `The probability to keep an element is ${keepProbability}; pass a number from 0 to 1.`,
      { numbers: { keepProbability } },
    );
  }
  return Math.round(keepProbability * keepAll);
}

/**
 * The factor of elements that dropout with probability p keeps: 1 / the exact probability to keep one, so that the mean stays. That
 * probability is a multiple of 2⁻¹⁶. If it is 0, none is kept.
 */
export function scaleOfKept(p: number): number {
  const threshold = thresholdOf(1 - p);
  return threshold > 0 ? keepAll / threshold : 0;
}

/** 1 where a number of a draw is below the threshold, else 0. */
export function keepMask(numbers: Uint16Array, threshold: number): Uint8Array<ArrayBuffer> {
  return Uint8Array.from(numbers, (number) => (number < threshold ? 1 : 0));
}
