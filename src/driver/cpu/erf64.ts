/** erf and erfc of a double, which JavaScript's Math lacks. */

/** Up to here the series is short and all its terms are positive. Above, erfc is small and needs few good digits. */
const seriesUpTo = 2.25;

/** From here on erfc is below half an ulp of 1. */
const saturatesAt = 6;

/** Levels of the continued fraction that bring erfc(2.25) within 10⁻¹⁵ of 1; the number grows with 1 / a². */
const fractionLevels = 60;

/** Below this, erfc is 1 − erf without a loss of digits. */
const complementFrom = 0.5;

/**
 * erf(x) to about 10⁻¹⁵ of itself.
 *
 * ```js
 * erf64(0.5); // → 0.5204998778130465
 * ```
 */
export function erf64(x: number): number {
  const a = Math.abs(x);
  if (a >= saturatesAt) return Math.sign(x);
  return a <= seriesUpTo ? series(x) : Math.sign(x) * (1 - complementaryByFraction(a));
}

/**
 * erfc(x) to about 10⁻¹⁵ of itself: the difference of erf from 1.
 *
 * ```js
 * erfc64(5); // → 1.5374597944280347e-12
 * ```
 */
export function erfc64(x: number): number {
  if (Number.isNaN(x)) return x;
  return x < complementFrom ? 1 - erf64(x) : complementaryByFraction(x);
}

/** 2/√π · e^−x² · (x + 2x³/3 + 4x⁵/(3·5) + …). No term cancels another. */
function series(x: number): number {
  const square = x * x;
  let term = x;
  let sum = x;
  for (let n = 1; Math.abs(term) > Math.abs(sum) * 2 ** -56; n++) {
    term *= (2 * square) / (2 * n + 1);
    sum += term;
  }
  return (2 / Math.sqrt(Math.PI)) * Math.exp(-square) * sum;
}

/** e^−a² / √π · 1 / (a + ½ / (a + 1 / (a + 3⁄2 / (a + …)))), from the inside out. */
function complementaryByFraction(a: number): number {
  let denominator = a;
  const levels = Math.ceil(fractionLevels * Math.max(1, (seriesUpTo / a) ** 2));
  for (let level = levels; level >= 1; level--) denominator = a + level / 2 / denominator;
  return Math.exp(-a * a) / (Math.sqrt(Math.PI) * denominator);
}
