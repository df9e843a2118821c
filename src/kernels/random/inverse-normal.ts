/**
 * The distribution function of the standard normal distribution and its inverse, by additions, multiplications, divisions and square
 * roots in float64, so that every machine gives the same bits. The reference for kernels.
 */

import { logarithm, powerSeries } from "./normal.js";

/** p(x) / q(x), the coefficients in ascending order. */
interface Rational {
  readonly numerator: readonly number[];
  readonly denominator: readonly number[];
}

/** Up to this distance of p from 1/2 the central approximation holds. */
export const centralWidth = 0.425;
/** The square of `centralWidth`. */
export const centralSquare = 0.180625;
/** √(−ln p) up to which the near tail holds, and the shifts of both tails. */
export const farTail = 5;
export const nearShift = 1.6;

/**
 * The rational approximations of Wichura's PPND16 ("Algorithm AS 241: The Percentage Points of the Normal Distribution", 1988), within
 * 10⁻¹⁶ of the quantile.
 */
export const quantiles = {
  central: {
    numerator: [
      3.3871328727963665, 133.14166789178438, 1971.5909503065513, 13731.69376550946, 45921.95393154987,
      67265.7709270087, 33430.57558358813, 2509.0809287301227,
    ],
    denominator: [
      1, 42.31333070160091, 687.1870074920579, 5394.196021424751, 21213.794301586597, 39307.89580009271,
      28729.085735721943, 5226.495278852854,
    ],
  },
  near: {
    numerator: [
      1.4234371107496835, 4.630337846156546, 5.769497221460691, 3.6478483247632045, 1.2704582524523684,
      0.2417807251774506, 0.022723844989269184, 0.0007745450142783414,
    ],
    denominator: [
      1, 2.053191626637759, 1.6763848301838038, 0.6897673349851, 0.14810397642748008, 0.015198666563616457,
      0.0005475938084995345, 1.0507500716444169e-9,
    ],
  },
  far: {
    numerator: [
      6.657904643501103, 5.463784911164114, 1.7848265399172913, 0.29656057182850487, 0.026532189526576124,
      0.0012426609473880784, 0.000027115555687434876, 2.0103343992922881e-7,
    ],
    denominator: [
      1, 0.599832206555888, 0.1369298809227358, 0.014875361290850615, 0.0007868691311456133,
      0.000018463183175100548, 1.421511758316446e-7, 2.0442631033899397e-15,
    ],
  },
} as const satisfies Record<string, Rational>;

/**
 * The x with Φ(x) = p, for p from 0 to 1, both excluded.
 *
 * ```js
 * inverseNormalCdf(0.975); // 1.959963984540054
 * ```
 */
export function inverseNormalCdf(p: number): number {
  const q = p - 0.5;
  if (Math.abs(q) <= centralWidth) {
    const { numerator, denominator } = quantiles.central;
    const rest = centralSquare - q * q;
    return (q * powerSeries(numerator, rest)) / powerSeries(denominator, rest);
  }
  const r = Math.sqrt(-logarithm(q < 0 ? p : 1 - p));
  const isFar = r > farTail;
  const { numerator, denominator } = isFar ? quantiles.far : quantiles.near;
  const shifted = r - (isFar ? farTail : nearShift);
  const distance = powerSeries(numerator, shifted) / powerSeries(denominator, shifted);
  return q < 0 ? -distance : distance;
}

/** Up to here the series needs few terms, and what cancels leaves twelve digits. */
const seriesUpTo = 4;
/** Levels of the continued fraction, enough from `seriesUpTo` on. */
const fractionLevels = 120;

/**
 * Φ(x): the probability of a value below x. The relative error of a small probability is at most 10⁻¹¹.
 *
 * ```js
 * normalCdf(-2); // 0.02275013194817921
 * ```
 */
export function normalCdf(x: number): number {
  if (x > 0) return 1 - normalCdf(-x);
  const distance = -x;
  // Beyond 38.5 standard deviations the probability is below the smallest double.
  if (distance > 38.5) return 0;
  const density = exponential(-distance * distance * 0.5) / Math.sqrt(2 * Math.PI);
  if (distance <= seriesUpTo) return 0.5 - density * oddSeries(distance);
  let denominator = distance;
  for (let level = fractionLevels; level >= 1; level--) denominator = distance + level / denominator;
  return density / denominator;
}

/** x + x³ / 3 + x⁵ / (3 · 5) + … */
function oddSeries(x: number): number {
  let [term, sum] = [x, x];
  for (let n = 3; term > sum * 2 ** -56; n += 2) {
    term *= (x * x) / n;
    sum += term;
  }
  return sum;
}

/** eˣ for x ≤ 0: the power series of the rest after whole powers of two. */
function exponential(x: number): number {
  const exponent = Math.round(x / Math.LN2);
  const rest = x - exponent * Math.LN2;
  let [term, sum] = [1, 1];
  for (let n = 1; n <= 18; n++) {
    term *= rest / n;
    sum += term;
  }
  // In two steps, because 2^exponent alone may be too small for a double.
  const half = Math.trunc(exponent / 2);
  return sum * 2 ** half * 2 ** (exponent - half);
}
