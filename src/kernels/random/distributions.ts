/** Distributions from random words, by integers and exact arithmetic only, so that CPU and GPU agree in every bit. The reference for kernels. */

import { HoldfastError } from "../../errors/index.js";

/** The threshold above every word. It has 33 bits, so kernels with a 32-bit threshold are not launched for it. */
export const keepAll = 2 ** 32;

/** A float32 in [0, 1): the word's upper 24 bits as a fraction, which float32 holds exactly. */
export function uniform(word: number): number {
  return (word >>> 8) * 2 ** -24;
}

/**
 * The threshold below which a word means "keep": round(probability · 2³²), from 0 (never) to `keepAll`. Comparing
 * integers involves no rounding; comparing `uniform(word)` with a float32 probability would.
 *
 * ```js
 * thresholdOf(0.5); // 2147483648
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
  return Math.round(keepProbability * 2 ** 32);
}

/** The factor of elements that dropout keeps. With p = 1 it keeps none. */
export function scaleOfKept(p: number): number {
  return p < 1 ? 1 / (1 - p) : 0;
}

/** 1 where a word is below the threshold, else 0. */
export function keepMask(words: Uint32Array, threshold: number): Uint8Array<ArrayBuffer> {
  return Uint8Array.from(words, (word) => (word < threshold ? 1 : 0));
}
