/** pow and rsqrt of four floats. */

import {
  abs,
  abs32,
  and,
  andNot,
  div32,
  f32,
  isEqual32,
  isLess32,
  isNotEqual32,
  keep,
  mul,
  mul32,
  nanWhere32,
  or,
  read,
  select,
  sqrt32,
  trunc32,
} from "./expression.js";
import { inDoubles } from "./halves.js";
import { vectorFunction } from "./vector-function.js";
import { wideExp, wideLog } from "./wide-exp-log.js";

/**
 * |x|^y as e^(y ln|x|), then the rules of C99: x⁰ and 1^y are 1 for every x and y; (−1)^±Infinity is 1; a negative base has a result only
 * for integer exponents, with a negative sign for odd ones.
 */
export const pow = vectorFunction("pow", 2, (code, baseInput, powerInput) => {
  const [base, power] = [read(baseInput), read(powerInput)];
  const computed = inDoubles(code, [baseInput, powerInput], (inner, x, y) => {
    const magnitude = keep(inner, abs(x));
    return wideExp(inner, keep(inner, mul(y, wideLog(inner, magnitude))));
  });
  const half = mul32(power, f32(0.5));
  const isInteger = keep(code, isEqual32(trunc32(power), power));
  const isOdd = and(isInteger, isNotEqual32(trunc32(half), half));
  // 1^y is computed as e^(y · 0), which is NaN for an infinite power only.
  const isOneToInfinity = and(
    isEqual32(abs32(base), f32(1)),
    isEqual32(abs32(power), f32(Number.POSITIVE_INFINITY)),
  );
  const magnitude = select(isOneToInfinity, f32(1), computed);
  const signed = or(magnitude, and(and(base, isOdd), f32(-0)));
  const isBelowZero = and(isLess32(base, f32(0)), isNotEqual32(base, f32(Number.NEGATIVE_INFINITY)));
  const isUndefined = andNot(isBelowZero, isInteger);
  const isOne = or(isEqual32(power, f32(0)), isEqual32(base, f32(1)));
  return select(isOne, f32(1), nanWhere32(isUndefined, signed));
});

/** 1 / √x in two operations, each correctly rounded: an error of at most 1.5 ulp. */
export const rsqrt = vectorFunction("rsqrt", 1, (_code, x) => div32(f32(1), sqrt32(read(x))));
