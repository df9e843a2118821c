/** exp of four floats, computed in float: softmax and attention need it to be fast, and doubles would take twice the time. */

import type { Code } from "../../../../driver/index.js";
import {
  add32,
  addBits32,
  atLeast32,
  atMost32,
  type Expression,
  f32,
  keep,
  mul32,
  polynomial32,
  read,
  shiftLeft32,
  shiftRight32,
  sub32,
  subBits32,
} from "./expression.js";
import { inDoubles } from "./halves.js";
import { vectorFunction } from "./vector-function.js";
import { expTail, wideExp2 } from "./wide-exp-log.js";

/** Above `highest` e^x is Infinity, and below `lowest` 0, both with a margin. */
const [lowest, highest] = [-104, 89];

/** Adding this to a float below 2²² rounds the float to an integer, which is then in the low bits. */
const roundingShift32 = 1.5 * 2 ** 23;

/** ln 2 as a sum of two floats: the first has 15 bits, so that its product with n, which has 8 bits, is exact. */
const ln2Coarse = 22713 / 2 ** 15;
const ln2Fine = Math.LN2 - ln2Coarse;

/**
 * e^x = 2ⁿ e^r with n = round(x / ln2). The rounding error of 1 + r is added to the smaller terms, so that the error of e^x is at most
 * 0.8 ulp. 2ⁿ is a product of two factors, because for n from −150 to 128 it is not always a float. The multiplication by the first factor
 * is exact, so that a subnormal result is rounded once.
 */
export function exp32(code: Code, x: Expression): Expression {
  const clamped = keep(code, atLeast32(atMost32(x, f32(highest)), f32(lowest)));
  const shifted = keep(code, add32(mul32(clamped, f32(Math.LOG2E)), f32(roundingShift32)));
  const n = keep(code, sub32(shifted, f32(roundingShift32)));
  const r = keep(code, sub32(sub32(clamped, mul32(n, f32(ln2Coarse))), mul32(n, f32(ln2Fine))));
  const onePlusR = keep(code, add32(r, f32(1)));
  const roundingError = sub32(r, sub32(onePlusR, f32(1)));
  const power = add32(onePlusR, add32(mul32(mul32(r, r), polynomial32(r, expTail)), roundingError));
  // After the shift to the exponent, only the low nine bits remain, which are n. They are added to the exponent of 1.
  const half = keep(code, shiftRight32(shifted, 1));
  const otherHalf = subBits32(shifted, half);
  const scaled = mul32(power, addBits32(shiftLeft32(half, 23), f32(1)));
  return mul32(scaled, addBits32(shiftLeft32(otherHalf, 23), f32(1)));
}

export const exp = vectorFunction("exp", 1, (code, x) => exp32(code, read(x)));

/** 2^x, computed in doubles. */
export const exp2 = vectorFunction("exp2", 1, (code, x) => inDoubles(code, [x], wideExp2));
