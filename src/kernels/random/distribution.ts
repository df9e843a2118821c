/** Distributions of independent elements, and the reference of their values. */

import { uniform } from "./distributions.js";
import { inverseNormalCdf, normalCdf } from "./inverse-normal.js";
import { logarithm, normal } from "./normal.js";
import { drawWords, type RandomStream } from "./random-stream.js";

/** The bounds are finite, and so are mean and standard deviation; a truncated normal distribution may be open on either side. */
export type Distribution =
  | { readonly kind: "uniform"; readonly low: number; readonly high: number }
  | { readonly kind: "normal"; readonly mean: number; readonly std: number }
  | {
      readonly kind: "truncNormal";
      readonly mean: number;
      readonly std: number;
      readonly low: number;
      readonly high: number;
    }
  | { readonly kind: "exponential"; readonly rate: number };

/** Uniform whole numbers: `count` of them, from `low` on, as i32. Their probabilities are equal to within `count` in 2³². */
export interface Integers {
  readonly kind: "integers";
  readonly low: number;
  /** From 1 to 2³² − 1. */
  readonly count: number;
}

/** Uniform in [0, 1). */
export const standardUniform: Distribution = { kind: "uniform", low: 0, high: 1 };

/** A mean of −0 leaves every value as it is, zeros included. */
export const standardNormal: Distribution = { kind: "normal", mean: -0, std: 1 };

/** The probabilities at the bounds of a truncated normal distribution, and the scale of its quantiles. */
export interface Truncation {
  readonly probability: number;
  readonly span: number;
  /** Negative if the quantiles are those of the mirrored distribution. */
  readonly scale: number;
}

/** Both bounds above the mean are mirrored: probabilities near 1 would lose digits. A span of 0 has no values. */
export function truncationOf({ mean, std, low, high }: Distribution & { kind: "truncNormal" }): Truncation {
  const [from, to] = [(low - mean) / std, (high - mean) / std];
  const [scale, below, above] = from > 0 ? [-std, -to, -from] : [std, from, to];
  const probability = normalCdf(below);
  return { probability, span: normalCdf(above) - probability, scale };
}

/**
 * The scalar arguments of a distribution's kernel, in the order of `valueParameters`.
 *
 * A uniform value is a + b · fraction, a normal one a + b · standard normal, and a truncated one a + b · quantile(c + d · fraction),
 * limited to e and f. An exponential one is a · ln(fraction). A whole number is a plus the upper half of the product b · word.
 */
export function scalarsOf(distribution: Distribution | Integers): readonly number[] {
  switch (distribution.kind) {
    case "uniform":
      return [distribution.low, distribution.high - distribution.low];
    case "normal":
      return [distribution.mean, distribution.std];
    case "exponential":
      return [-1 / distribution.rate];
    case "integers":
      return [distribution.low, distribution.count];
    case "truncNormal": {
      const { probability, span, scale } = truncationOf(distribution);
      return [distribution.mean, scale, probability, span, distribution.low, distribution.high];
    }
  }
}

/**
 * The first `count` values of a stream, each rounded once more to float32 after scaling. The reference for kernels.
 *
 * ```js
 * drawValues({ kind: "normal", mean: 0, std: 0.02 }, { seed: 42, id: 1 }, 4);
 * ```
 */
export function drawValues(
  distribution: Distribution,
  stream: RandomStream,
  count: number,
): Float32Array<ArrayBuffer> {
  const [a = 0, b = 0, c = 0, d = 0, e = 0, f = 0] = scalarsOf(distribution);
  if (distribution.kind === "normal") {
    const values = normal(stream, count);
    for (let i = 0; i < count; i++) values[i] = a + b * (values[i] ?? 0);
    return values;
  }
  const words = drawWords(stream, count);
  // The values take the place of their words.
  const values = new Float32Array(words.buffer);
  const convert = (word: number): number => {
    if (distribution.kind === "uniform") return a + b * uniform(word);
    if (distribution.kind === "exponential") return a * logarithm(middleOf(word));
    return limit(a + b * inverseNormalCdf(c + d * middleOf(word)), e, f);
  };
  for (let i = 0; i < count; i++) values[i] = convert(words[i] ?? 0);
  return values;
}

/** The first `count` whole numbers of a stream. The reference for kernels. */
export function drawIntegers(
  integers: Integers,
  stream: RandomStream,
  count: number,
): Int32Array<ArrayBuffer> {
  const choices = BigInt(integers.count);
  return Int32Array.from(
    drawWords(stream, count),
    (word) => integers.low + Number((BigInt(word) * choices) >> 32n),
  );
}

/** The middle of the word's interval in (0, 1), which is neither 0 nor 1. */
function middleOf(word: number): number {
  return (word + 0.5) * 2 ** -32;
}

function limit(value: number, low: number, high: number): number {
  const raised = value < low ? low : value;
  return raised > high ? high : raised;
}
