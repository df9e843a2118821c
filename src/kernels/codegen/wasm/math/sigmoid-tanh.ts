/** sigmoid and tanh of four floats, computed in float, because activations need them to be fast. */

import { exp32 } from "./exp.js";
import {
  abs32,
  add32,
  div32,
  f32,
  isLess32,
  keep,
  mul32,
  neg32,
  polynomial32,
  read,
  select,
  sub32,
  withSignOf32,
} from "./expression.js";
import { vectorFunction } from "./vector-function.js";

/**
 * With e = e^−|x| and t = e / (1 + e) = σ(−|x|): σ(x) is 1 − t for x ≥ 0 and e (1 − t) for x < 0. The exponential is at most 1, so nothing
 * overflows, and for large negative x the result is e down to its last subnormal bit. In the form b − bt the error of t matters little where
 * t is small: the error is at most 1.7 ulp; e / (1 + e) itself has 2.3 ulp.
 */
export const sigmoid = vectorFunction("sigmoid", 1, (code, x) => {
  const e = keep(code, exp32(code, neg32(abs32(read(x)))));
  const t = keep(code, div32(e, add32(e, f32(1))));
  const b = keep(code, select(isLess32(read(x), f32(0)), e, f32(1)));
  return sub32(b, mul32(b, t));
});

/** (tanh a / a − 1) / a² as a polynomial of a² on a ≤ 0.625: minimax, relative error of tanh at most 2^−27.7. */
const tanhTail = [
  -0.33333281941979487, 0.1333144219754616, -0.053739715047786525, 0.020639087155749768, -0.00570498692423499,
];
const polynomialBelow = 0.625;

/** With a = |x|: 1 − 2 / (e^2a + 1), which is 1 if e^2a is Infinity. Near zero this cancels, so a polynomial is used. */
export const tanh = vectorFunction("tanh", 1, (code, x) => {
  const a = keep(code, abs32(read(x)));
  const e = exp32(code, add32(a, a));
  const large = keep(code, sub32(f32(1), div32(f32(2), add32(e, f32(1)))));
  const square = keep(code, mul32(a, a));
  const small = add32(mul32(mul32(square, polynomial32(square, tanhTail)), a), a);
  return withSignOf32(read(x), select(isLess32(a, f32(polynomialBelow)), small, large));
});
