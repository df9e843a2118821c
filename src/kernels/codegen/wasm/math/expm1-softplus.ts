/** expm1 and softplus of four floats, from e^x in doubles. */

import {
  abs,
  add,
  atLeast,
  div,
  f64,
  isLess,
  keep,
  mul,
  neg,
  read,
  select,
  sub,
  withSignOf32,
} from "./expression.js";
import { inDoubles } from "./halves.js";
import { vectorFunction } from "./vector-function.js";
import { doubleAtanh, wideExp } from "./wide-exp-log.js";

/** Below this, e^x − 1 is x + x²/2 with a relative error of 2^−38. Above it, the subtraction leaves more bits than a float has. */
const expm1SmallBelow = 2 ** -18;

export const expm1 = vectorFunction("expm1", 1, (code, x) => {
  const wide = inDoubles(code, [x], (inner, value) => {
    const general = keep(inner, sub(wideExp(inner, value), f64(1)));
    const small = add(value, mul(mul(value, value), f64(0.5)));
    return select(isLess(abs(value), f64(expm1SmallBelow)), small, general);
  });
  return withSignOf32(read(x), wide);
});

/** Like `logTail`, for s² up to 1/9, so that ln(1 + e) needs no exponent: minimax, relative error 2^−33. */
const logOfOneToTwoTail = [
  0.6666667562191915, 0.3999887774649819, 0.2861688473551133, 0.2142765829168654, 0.24300933608943212,
];

/** max(x, 0) + ln(1 + e^−|x|), with the logarithm as 2 atanh(e / (2 + e)), whose relative error is small down to e = 0. */
export const softplus = vectorFunction("softplus", 1, (code, x) =>
  inDoubles(code, [x], (inner, value) => {
    const e = keep(inner, wideExp(inner, neg(abs(value))));
    const log1p = doubleAtanh(inner, div(e, add(e, f64(2))), logOfOneToTwoTail);
    return add(atLeast(value, f64(0)), log1p);
  }),
);
