/** sinh, cosh and the inverse hyperbolic functions of four floats, from e^x and ln x in doubles. */

import {
  abs,
  abs32,
  add,
  div,
  f32,
  f64,
  isLess,
  isLess32,
  keep,
  mul,
  nanWhere32,
  polynomial,
  read,
  select,
  sqrt,
  sub,
  withSignOf,
} from "./expression.js";
import { inDoubles } from "./halves.js";
import { vectorFunction } from "./vector-function.js";
import { doubleAtanh, logTail, wideExp, wideLog } from "./wide-exp-log.js";

/** Below this, three terms of the series have a relative error of 2^−30. Above it, the difference of the powers keeps enough bits. */
const sinhSmallBelow = 2 ** -3;

/** ±(e^a − e^−a) / 2 with a = |x|. */
export const sinh = vectorFunction("sinh", 1, (code, x) =>
  inDoubles(code, [x], (inner, value) => {
    const a = keep(inner, abs(value));
    const power = keep(inner, wideExp(inner, a));
    const general = mul(sub(power, div(f64(1), power)), f64(0.5));
    const square = keep(inner, mul(a, a));
    const small = mul(a, polynomial(square, [1, 1 / 6, 1 / 120]));
    return withSignOf(value, select(isLess(a, f64(sinhSmallBelow)), small, general));
  }),
);

export const cosh = vectorFunction("cosh", 1, (code, x) =>
  inDoubles(code, [x], (inner, value) => {
    const power = keep(inner, wideExp(inner, abs(value)));
    return mul(add(power, div(f64(1), power)), f64(0.5));
  }),
);

/** Below this, a − a³/6 has a relative error of 2^−39. Above it, the rounding of 1 + a leaves enough bits. */
const asinhSmallBelow = 2 ** -9;

/** ±ln(a + √(a² + 1)) with a = |x|. The square of a float does not overflow in double. */
export const asinh = vectorFunction("asinh", 1, (code, x) =>
  inDoubles(code, [x], (inner, value) => {
    const a = keep(inner, abs(value));
    const square = keep(inner, mul(a, a));
    const sum = keep(inner, add(a, sqrt(add(square, f64(1)))));
    const general = keep(inner, wideLog(inner, sum));
    const small = mul(a, polynomial(square, [1, -1 / 6]));
    return withSignOf(value, select(isLess(a, f64(asinhSmallBelow)), small, general));
  }),
);

/** ln(x + √((x − 1)(x + 1))); NaN below 1. */
export const acosh = vectorFunction("acosh", 1, (code, x) => {
  const result = inDoubles(code, [x], (inner, value) => {
    const root = sqrt(mul(sub(value, f64(1)), add(value, f64(1))));
    return wideLog(inner, keep(inner, add(value, root)));
  });
  return nanWhere32(isLess32(read(x), f32(1)), result);
});

/** The range of `logTail`. */
const atanhSmallBelow = 0.17;

/** ln((1 + x) / (1 − x)) / 2; ±Infinity at ±1, and NaN outside. */
export const atanh = vectorFunction("atanh", 1, (code, x) => {
  const result = inDoubles(code, [x], (inner, value) => {
    const quotient = keep(inner, div(add(f64(1), value), sub(f64(1), value)));
    const general = keep(inner, wideLog(inner, quotient));
    const isSmall = isLess(abs(value), f64(atanhSmallBelow));
    return mul(select(isSmall, doubleAtanh(inner, value, logTail), general), f64(0.5));
  });
  return nanWhere32(isLess32(f32(1), abs32(read(x))), result);
});
