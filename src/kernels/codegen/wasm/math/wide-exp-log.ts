/**
 * e^x and ln x of two doubles, with just the accuracy that a float result needs. The exponential and logarithmic functions of this folder
 * use them.
 */

import type { Code } from "../../../../driver/index.js";
import {
  add,
  addBits,
  and,
  atLeast,
  atMost,
  bits64,
  div,
  type Expression,
  f64,
  isEqual,
  isLess,
  keep,
  mul,
  or,
  polynomial,
  select,
  shiftLeft,
  shiftRight,
  sub,
} from "./expression.js";

/** Adding this to a double below 2⁵¹ rounds the double to an integer, which is then in the low bits. */
export const roundingShift = 1.5 * 2 ** 52;

/**
 * Minimax coefficients of (e^r − 1 − r) / r² on |r| ≤ ln2 / 2, weighted for a relative error of e^r of at most 2^−28.2. The terms 1 + r are
 * exact, so that e^r − 1 of a small r has a small relative error, too.
 */
export const expTail = [
  0.49999993451695296, 0.16666520689790545, 0.04166838736391418, 0.00836870982809258, 0.00138146131302291,
];

/** Beyond this limit the float result is 0 or Infinity; within it 2ⁿ is a normal double. */
const expLimit = 700;

/** e^x = 2ⁿ e^r with n = round(x / ln2). NaN stays NaN, because only arithmetic is applied to it. */
export function wideExp(code: Code, x: Expression): Expression {
  const clamped = keep(code, atLeast(atMost(x, f64(expLimit)), f64(-expLimit)));
  const shifted = keep(code, add(mul(clamped, f64(Math.LOG2E)), f64(roundingShift)));
  const n = sub(shifted, f64(roundingShift));
  const r = keep(code, sub(clamped, mul(n, f64(Math.LN2))));
  const power = add(add(mul(mul(r, r), polynomial(r, expTail)), r), f64(1));
  // Shifts n from the low bits to the exponent, and adds it to the exponent of 1.
  return mul(power, addBits(shiftLeft(shifted, 52), f64(1)));
}

/** 2^x = 2ⁿ e^(r ln2) with n = round(x): exact for whole x. */
export function wideExp2(code: Code, x: Expression): Expression {
  const clamped = keep(code, atLeast(atMost(x, f64(expLimit)), f64(-expLimit)));
  const shifted = keep(code, add(clamped, f64(roundingShift)));
  const n = sub(shifted, f64(roundingShift));
  const r = keep(code, mul(sub(clamped, n), f64(Math.LN2)));
  const power = add(add(mul(mul(r, r), polynomial(r, expTail)), r), f64(1));
  return mul(power, addBits(shiftLeft(shifted, 52), f64(1)));
}

/** (2 atanh(s) / s − 2) / s² as a polynomial of s² up to ((√2 − 1) / (√2 + 1))²: minimax, relative error of ln 2^−37.6. */
export const logTail = [0.6666666564545605, 0.4000033519095551, 0.2853730853767877, 0.23582151384360947];

const bitsOfRootHalf = 0x3fe6a09e667f3bcdn;
const bitsOfOne = 0x3ff0000000000000n;
const fractionBits = 0x000fffffffffffffn;

/** 2 atanh(s) = ln((1 + s) / (1 − s)); `tail`: the coefficients after the linear term. */
export function doubleAtanh(code: Code, s: Expression, tail: readonly number[]): Expression {
  const once = keep(code, s);
  const square = keep(code, mul(once, once));
  return mul(once, add(mul(square, polynomial(square, tail)), f64(2)));
}

/**
 * ln x = e ln2 + ln m with x = 2ᵉ m and m in [√½, √2). ln 0 = −Infinity, ln Infinity = Infinity, and NaN stays NaN. The result for a
 * negative number is undefined.
 */
export function wideLog(code: Code, x: Expression): Expression {
  // From √½ to √2 the sum has the exponent of 1, so that its exponent field is e + 1023.
  const lifted = keep(code, addBits(x, bits64(bitsOfOne - bitsOfRootHalf)));
  // Under the exponent of 2⁵² an integer's bits are that integer's double, plus 2⁵².
  const e = sub(or(shiftRight(lifted, 52), f64(2 ** 52)), f64(2 ** 52 + 1023));
  const m = keep(code, addBits(and(lifted, bits64(fractionBits)), bits64(bitsOfRootHalf)));
  const s = div(sub(m, f64(1)), add(m, f64(1)));
  const log = add(mul(e, f64(Math.LN2)), doubleAtanh(code, s, logTail));
  const finite = select(isEqual(x, f64(0)), f64(Number.NEGATIVE_INFINITY), log);
  return select(isLess(x, f64(Number.POSITIVE_INFINITY)), finite, x);
}
