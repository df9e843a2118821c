/**
 * Normally distributed values for initialisers: Box–Muller in float64, rounded once to float32.
 *
 * The logarithm, sine and cosine are computed here by additions, multiplications and divisions, which JavaScript rounds the same
 * everywhere. Those of `Math` may differ in the last bit between engine versions; then two machines would initialise different weights.
 */

import { drawWords, type RandomStream, requireInStream } from "./random-stream.js";

/**
 * Values `offset` to `offset + count` of a stream of standard normals. Values 2k and 2k + 1 come from the words 2k (radius) and 2k + 1
 * (angle), so a value depends on its index alone.
 *
 * ```js
 * normal({ seed: 42, id: 0 }, 4); // Float32Array of the first tensor's first four values
 * ```
 */
export function normal(stream: RandomStream, count: number, offset = 0): Float32Array<ArrayBuffer> {
  requireInStream(count, offset);
  const skipped = offset % 2;
  const words = drawWords(stream, 2 * Math.ceil((skipped + count) / 2), offset - skipped);
  const values = new Float32Array(count);
  for (let pair = 0; pair < words.length; pair += 2) {
    const radius = Math.sqrt(-2 * logOfFraction(words[pair] ?? 0));
    const { cosine, sine } = direction(words[pair + 1] ?? 0);
    // A typed array ignores writes outside of its bounds: half a pair at either end is dropped.
    values[pair - skipped] = radius * cosine;
    values[pair + 1 - skipped] = radius * sine;
  }
  return values;
}

/** 1/1, 1/3, 1/5, …: for |s| ≤ 0.172 the first omitted term is below 2⁻⁶⁰. */
export const atanhCoefficients = Array.from({ length: 11 }, (_, n) => 1 / (2 * n + 1));

/** ln((word + 1) / 2³²), which is never −∞: the fraction is in (0, 1]. */
export function logOfFraction(word: number): number {
  const exponent = 32 - Math.clz32(word);
  return logOfScaled((word + 1) / 2 ** exponent, exponent - 32);
}

const double = new Float64Array(1);
const halves = new Uint32Array(double.buffer);

/** ln(x) of a positive normal double. */
export function logarithm(x: number): number {
  double[0] = x;
  const high = halves[1] ?? 0;
  halves[1] = (high & 0xfffff) | 0x3fe00000;
  return logOfScaled(double[0] ?? 0, (high >>> 20) - 1022);
}

/** ln(mantissa · 2^exponent), for a mantissa from 0.5 to 1. */
function logOfScaled(mantissa: number, exponent: number): number {
  // A mantissa near 1 has a small logarithm, which cancels nothing.
  const isSmall = mantissa < Math.SQRT1_2;
  const near = isSmall ? mantissa * 2 : mantissa;
  const s = (near - 1) / (near + 1);
  return (isSmall ? exponent - 1 : exponent) * Math.LN2 + 2 * s * powerSeries(atanhCoefficients, s * s);
}

/** The Taylor series of sin(x) / x and cos(x) in x²; for |x| ≤ π/4 the omitted terms are below 2⁻⁵⁸. */
export const sineCoefficients = taylorCoefficients(1);
export const cosineCoefficients = taylorCoefficients(0);

/** The direction at the angle 2π · word / 2³². */
export function direction(word: number): { readonly cosine: number; readonly sine: number } {
  // The nearest quarter turn is subtracted as an integer, which is exact.
  const quarters = ((word + 2 ** 29) >>> 30) & 3;
  const rest = (word - quarters * 2 ** 30) | 0;
  const angle = rest * (Math.PI / 2 ** 31);
  const square = angle * angle;
  const sine = angle * powerSeries(sineCoefficients, square);
  const cosine = powerSeries(cosineCoefficients, square);
  if (quarters === 0) return { cosine, sine };
  if (quarters === 1) return { cosine: -sine, sine: cosine };
  if (quarters === 2) return { cosine: -cosine, sine: -sine };
  return { cosine: sine, sine: -cosine };
}

/** (−1)ⁿ / (2n + first)! */
function taylorCoefficients(first: 0 | 1): number[] {
  const coefficients = [1];
  for (let n = 1; n <= 8; n++)
    coefficients.push(-(coefficients[n - 1] ?? 0) / ((2 * n + first - 1) * (2 * n + first)));
  return coefficients;
}

/** c₀ + c₁ · x + c₂ · x² + …, by Horner's rule. */
export function powerSeries(coefficients: readonly number[], x: number): number {
  let sum = 0;
  for (let n = coefficients.length - 1; n >= 0; n--) sum = sum * x + (coefficients[n] ?? 0);
  return sum;
}
