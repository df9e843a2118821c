/**
 * Numbers that are easily confused with each other, or rounded: zeros, ends of ranges, non-finite numbers,
 * numbers with many digits.
 */

const { MAX_VALUE, MIN_VALUE, EPSILON } = Number;

/** Every number differs from every other by `Object.is`. */
export const specialValues: readonly number[] = [
  ...[0, -0, Infinity, -Infinity, NaN],
  // Subnormals of f64 and f32, and the ends of their ranges.
  ...[MIN_VALUE, -MIN_VALUE, 2 ** -149, -(2 ** -149), 2 ** -126, 2 ** -1022, MAX_VALUE, -MAX_VALUE],
  ...[(2 - 2 ** -23) * 2 ** 127, -(2 - 2 ** -23) * 2 ** 127, 65504, 2 ** -24],
  // Decimals that binary can't represent, and neighbours of 1.
  ...[0.1, -0.1, 1 / 3, Math.fround(0.1), 1, -1, 1 + EPSILON, 1 - EPSILON / 2, 1 + 2 ** -23],
  // Integers that f32 or i32 can't represent.
  ...[2 ** 24, 2 ** 24 + 1, -(2 ** 24) - 1, 2 ** 31 - 1, 2 ** 31, -(2 ** 31), -(2 ** 31) - 1],
  ...[255, 256, 2 ** 32, 2 ** 53, 2 ** 53 - 1],
];
