/**
 * Values of distributions in WebAssembly: four words become a vector of four f32. The operations and their order are those of the
 * reference on the host, two lanes of f64 at a time.
 */

import type { Code, Local, StackOpcode } from "../../driver/index.js";
import type { ValueKind } from "./cuda-values.js";
import { centralSquare, centralWidth, farTail, nearShift, quantiles } from "./inverse-normal.js";
import { atanhCoefficients, cosineCoefficients, sineCoefficients } from "./normal.js";
import type { FourLocals } from "./wasm-philox.js";

/** Prints the conversion of four words to four values, and returns the vector. */
export type PrintValues = (words: FourLocals) => Local;

/** Prints the constants of a distribution, before the loop. `scalar` has the arguments of `scalarsOf`, i32 or f64. */
export function valuePrinter(code: Code, kind: ValueKind, scalar: (index: number) => Local): PrintValues {
  const vectors = new Vectors(code);
  const parameter = (index: number): Local => vectors.splat(scalar(index));
  switch (kind) {
    case "uniform":
      return printUniform(vectors, parameter);
    case "normal":
      return printNormal(vectors, parameter);
    case "truncNormal":
      return printTruncNormal(vectors, parameter);
    case "exponential":
      return printExponential(vectors, parameter);
    case "integers":
      return printIntegers(vectors, scalar(0), scalar(1));
  }
}

/** Vectors in locals: every operation sets a new one. */
class Vectors {
  readonly code: Code;
  readonly #constants = new Map<number, Local>();

  constructor(code: Code) {
    this.code = code;
  }

  op(name: StackOpcode, ...operands: readonly Local[]): Local {
    for (const operand of operands) this.code.get(operand);
    return this.keep(this.code.op(name));
  }

  /** Sets a new local to the vector on the stack. */
  keep(code: Code): Local {
    const result = this.code.local("v128");
    code.set(result);
    return result;
  }

  splat(scalar: Local): Local {
    return this.keep(this.code.get(scalar).op("f64x2.splat"));
  }

  /** A vector of one number. Declare all of them before the loop, which then only reads them. */
  constant(value: number): Local {
    const known = this.#constants.get(value);
    if (known) return known;
    const constant = this.keep(this.code.f64(value).op("f64x2.splat"));
    this.#constants.set(value, constant);
    return constant;
  }

  constants(values: readonly number[]): readonly Local[] {
    return values.map((value) => this.constant(value));
  }

  shift(name: "i32x4.shl" | "i32x4.shr_u" | "i64x2.shr_u" | "i64x2.shl", bits: Local, by: number): Local {
    return this.keep(this.code.get(bits).i32(by).op(name));
  }

  /** The lanes of two vectors of 32-bit lanes. */
  shuffle(first: Local, second: Local, lanes: readonly [number, number, number, number]): Local {
    return this.keep(this.code.get(first).get(second).shuffle(lanes));
  }

  highHalf(vector: Local): Local {
    return this.shuffle(vector, vector, [2, 3, 2, 3]);
  }

  /** The low halves of two vectors. */
  join(low: Local, high: Local): Local {
    return this.shuffle(low, high, [0, 1, 4, 5]);
  }

  /** `chosen` in lanes where the mask is set, else `other`. */
  select(mask: Local, chosen: Local, other: Local): Local {
    return this.op("v128.bitselect", chosen, other, mask);
  }

  /** i32 locals as the lanes of a vector. */
  lanes([first, ...rest]: readonly [Local, ...Local[]]): Local {
    this.code.get(first).op("i32x4.splat");
    for (const [index, word] of rest.entries()) this.code.get(word).lane("i32x4.replace_lane", index + 1);
    return this.keep(this.code);
  }

  /** a + b · x in f64, rounded to f32: the low two lanes. */
  scaled(x: Local, a: Local, b: Local): Local {
    return this.op("f32x4.demote_f64x2_zero", this.op("f64x2.add", a, this.op("f64x2.mul", b, x)));
  }

  powerSeries(coefficients: readonly Local[], x: Local): Local {
    return coefficients.reduceRight((sum, coefficient) =>
      this.op("f64x2.add", this.op("f64x2.mul", sum, x), coefficient),
    );
  }
}

type Coefficients = readonly Local[];
type Parameter = (index: number) => Local;

function printUniform(vectors: Vectors, parameter: Parameter): PrintValues {
  const [low, span] = [parameter(0), parameter(1)];
  const step = vectors.constant(2 ** -24);
  const valuesOf = (upper: Local): Local =>
    vectors.scaled(vectors.op("f64x2.mul", vectors.op("f64x2.convert_low_i32x4_s", upper), step), low, span);
  return (words) => {
    const upper = vectors.shift("i32x4.shr_u", vectors.lanes(words), 8);
    return vectors.join(valuesOf(upper), valuesOf(vectors.highHalf(upper)));
  };
}

function printNormal(vectors: Vectors, parameter: Parameter): PrintValues {
  const [mean, std] = [parameter(0), parameter(1)];
  const log = logarithmPrinter(vectors);
  const direction = directionPrinter(vectors);
  const [one, step, minusTwo] = [vectors.constant(1), vectors.constant(2 ** -32), vectors.constant(-2)];
  const valuesOf = (standard: Local): Local =>
    vectors.scaled(vectors.op("f64x2.promote_low_f32x4", standard), mean, std);
  return ([radius0, angle0, radius1, angle1]) => {
    const word = vectors.op("f64x2.convert_low_i32x4_u", vectors.lanes([radius0, radius1]));
    const fraction = vectors.op("f64x2.mul", vectors.op("f64x2.add", word, one), step);
    const radius = vectors.op("f64x2.sqrt", vectors.op("f64x2.mul", minusTwo, log(fraction)));
    const { cosine, sine } = direction(vectors.lanes([angle0, angle1]));
    const x = vectors.op("f32x4.demote_f64x2_zero", vectors.op("f64x2.mul", radius, cosine));
    const y = vectors.op("f32x4.demote_f64x2_zero", vectors.op("f64x2.mul", radius, sine));
    const standard = vectors.shuffle(x, y, [0, 4, 1, 5]);
    return vectors.join(valuesOf(standard), valuesOf(vectors.highHalf(standard)));
  };
}

function printTruncNormal(vectors: Vectors, parameter: Parameter): PrintValues {
  const [mean, scale, probability, span] = [parameter(0), parameter(1), parameter(2), parameter(3)];
  const [low, high] = [parameter(4), parameter(5)];
  const quantile = quantilePrinter(vectors);
  const [half, step] = [vectors.constant(0.5), vectors.constant(2 ** -32)];
  const valuesOf = (words: Local): Local => {
    const word = vectors.op("f64x2.convert_low_i32x4_u", words);
    const middle = vectors.op("f64x2.mul", vectors.op("f64x2.add", word, half), step);
    const p = vectors.op("f64x2.add", probability, vectors.op("f64x2.mul", span, middle));
    const value = vectors.op("f64x2.add", mean, vectors.op("f64x2.mul", scale, quantile(p)));
    const limited = vectors.op("f64x2.pmin", vectors.op("f64x2.pmax", value, low), high);
    return vectors.op("f32x4.demote_f64x2_zero", limited);
  };
  return (words) => {
    const all = vectors.lanes(words);
    return vectors.join(valuesOf(all), valuesOf(vectors.highHalf(all)));
  };
}

function printExponential(vectors: Vectors, parameter: Parameter): PrintValues {
  const scale = parameter(0);
  const log = logarithmPrinter(vectors);
  const [half, step] = [vectors.constant(0.5), vectors.constant(2 ** -32)];
  const valuesOf = (words: Local): Local => {
    const word = vectors.op("f64x2.convert_low_i32x4_u", words);
    const middle = vectors.op("f64x2.mul", vectors.op("f64x2.add", word, half), step);
    return vectors.op("f32x4.demote_f64x2_zero", vectors.op("f64x2.mul", scale, log(middle)));
  };
  return (words) => {
    const all = vectors.lanes(words);
    return vectors.join(valuesOf(all), valuesOf(vectors.highHalf(all)));
  };
}

/** Four i32: the upper halves of the products of the words and `count`, plus `low`. */
function printIntegers(vectors: Vectors, low: Local, count: Local): PrintValues {
  const [lows, counts] = [low, count].map((scalar) =>
    vectors.keep(vectors.code.get(scalar).op("i32x4.splat")),
  ) as [Local, Local];
  return (words) => {
    const all = vectors.lanes(words);
    const first = vectors.op("i64x2.extmul_low_i32x4_u", all, counts);
    const second = vectors.op("i64x2.extmul_high_i32x4_u", all, counts);
    return vectors.op("i32x4.add", vectors.shuffle(first, second, [1, 3, 5, 7]), lows);
  };
}

/** `logarithm`, of positive normal doubles. */
function logarithmPrinter(vectors: Vectors): (x: Local) => Local {
  const coefficients = vectors.constants(atanhCoefficients);
  const [half, one, two] = [vectors.constant(0.5), vectors.constant(1), vectors.constant(2)];
  const [rootHalf, ln2] = [vectors.constant(Math.SQRT1_2), vectors.constant(Math.LN2)];
  // The double with the bits of a significand, and the one whose last bits hold a small integer.
  const significand = vectors.constant((2 ** 52 - 1) * 2 ** -1074);
  const [integer, bias] = [vectors.constant(2 ** 52), vectors.constant(2 ** 52 + 1022)];
  return (x) => {
    const exponentBits = vectors.shift("i64x2.shr_u", x, 52);
    const exponent = vectors.op("f64x2.sub", vectors.op("v128.or", exponentBits, integer), bias);
    const mantissa = vectors.op("v128.or", vectors.op("v128.and", x, significand), half);
    const isSmall = vectors.op("f64x2.lt", mantissa, rootHalf);
    const near = vectors.op("f64x2.add", mantissa, vectors.op("v128.and", isSmall, mantissa));
    const power = vectors.op("f64x2.sub", exponent, vectors.op("v128.and", isSmall, one));
    const s = vectors.op("f64x2.div", vectors.op("f64x2.sub", near, one), vectors.op("f64x2.add", near, one));
    const series = vectors.powerSeries(coefficients, vectors.op("f64x2.mul", s, s));
    const rest = vectors.op("f64x2.mul", vectors.op("f64x2.mul", two, s), series);
    return vectors.op("f64x2.add", vectors.op("f64x2.mul", power, ln2), rest);
  };
}

/** `direction`, of the words in the low two lanes. */
function directionPrinter(
  vectors: Vectors,
): (word: Local) => { readonly cosine: Local; readonly sine: Local } {
  const { code } = vectors;
  const sines = vectors.constants(sineCoefficients);
  const cosines = vectors.constants(cosineCoefficients);
  const turn = vectors.constant(Math.PI / 2 ** 31);
  const eighth = vectors.keep(code.i32(2 ** 29).op("i32x4.splat"));
  const [zero, one] = [vectors.constant(0), vectors.constant(1)];
  /** 64-bit lanes with bit 63 set where bit 0 of the low 32-bit lanes is. */
  const toSign = (bits: Local): Local =>
    vectors.shift("i64x2.shl", vectors.shuffle(bits, zero, [0, 4, 1, 4]), 63);
  return (word) => {
    const quarters = vectors.shift("i32x4.shr_u", vectors.op("i32x4.add", word, eighth), 30);
    const rest = vectors.op("i32x4.sub", word, vectors.shift("i32x4.shl", quarters, 30));
    const angle = vectors.op("f64x2.mul", vectors.op("f64x2.convert_low_i32x4_s", rest), turn);
    const square = vectors.op("f64x2.mul", angle, angle);
    const sine = vectors.op("f64x2.mul", angle, vectors.powerSeries(sines, square));
    const cosine = vectors.powerSeries(cosines, square);
    // Odd quarter turns exchange the two. Turns 2 and 3 negate the sine, 1 and 2 the cosine.
    const oddSign = toSign(quarters);
    const isOdd = vectors.op("f64x2.lt", vectors.op("v128.or", oddSign, one), zero);
    const half = vectors.shift("i32x4.shr_u", quarters, 1);
    const sineSign = toSign(half);
    return {
      cosine: vectors.op(
        "v128.xor",
        vectors.select(isOdd, sine, cosine),
        vectors.op("v128.xor", oddSign, sineSign),
      ),
      sine: vectors.op("v128.xor", vectors.select(isOdd, cosine, sine), sineSign),
    };
  };
}

/** `inverseNormalCdf`. The tails are skipped if no lane is in them. */
function quantilePrinter(vectors: Vectors): (p: Local) => Local {
  const { code } = vectors;
  const log = logarithmPrinter(vectors);
  const rational = (name: keyof typeof quantiles): readonly [Coefficients, Coefficients] => [
    vectors.constants(quantiles[name].numerator),
    vectors.constants(quantiles[name].denominator),
  ];
  const [central, near, far] = [rational("central"), rational("near"), rational("far")];
  const [half, one] = [vectors.constant(0.5), vectors.constant(1)];
  const [width, square] = [vectors.constant(centralWidth), vectors.constant(centralSquare)];
  const [start, shift, zero] = [vectors.constant(farTail), vectors.constant(nearShift), vectors.constant(0)];
  return (p) => {
    const q = vectors.op("f64x2.sub", p, half);
    const rest = vectors.op("f64x2.sub", square, vectors.op("f64x2.mul", q, q));
    const numerator = vectors.op("f64x2.mul", q, vectors.powerSeries(central[0], rest));
    const result = vectors.op("f64x2.div", numerator, vectors.powerSeries(central[1], rest));
    const isTail = vectors.op("f64x2.gt", vectors.op("f64x2.abs", q), width);
    code.get(isTail).op("v128.any_true");
    code.if(() => {
      const isLower = vectors.op("f64x2.lt", q, zero);
      const tail = vectors.select(isLower, p, vectors.op("f64x2.sub", one, p));
      const r = vectors.op("f64x2.sqrt", vectors.op("f64x2.neg", log(tail)));
      const distanceIn = ([top, bottom]: readonly [Coefficients, Coefficients], from: Local): Local => {
        const shifted = vectors.op("f64x2.sub", r, from);
        return vectors.op(
          "f64x2.div",
          vectors.powerSeries(top, shifted),
          vectors.powerSeries(bottom, shifted),
        );
      };
      const distance = distanceIn(near, shift);
      const isFar = vectors.op("f64x2.gt", r, start);
      code.get(isFar).op("v128.any_true");
      code.if(() => {
        code.get(vectors.select(isFar, distanceIn(far, start), distance)).set(distance);
      });
      const signed = vectors.select(isLower, vectors.op("f64x2.neg", distance), distance);
      code.get(vectors.select(isTail, signed, result)).set(result);
    });
    return result;
  };
}
