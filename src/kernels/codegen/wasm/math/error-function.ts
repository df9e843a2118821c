/** erf of four floats. */

import {
  abs,
  atMost,
  f64,
  isLess,
  keep,
  mul,
  neg,
  polynomial,
  read,
  select,
  sub,
  withSignOf32,
} from "./expression.js";
import { inDoubles } from "./halves.js";
import { vectorFunction } from "./vector-function.js";
import { wideExp } from "./wide-exp-log.js";

/** Minimax coefficients of −ln(1 − erf a) / a on 0 ≤ a ≤ 4, weighted for a relative error of erf of at most 2^−31.1. */
const rate = [
  1.1283791666278062, 0.636619834576356, 0.10277127715720188, -0.019117694862383437, -0.000253061086365956,
  0.0017993538760548132, -0.0007406858790760966, 0.00016748091966855012, -2.135457780452653e-5,
  1.1932963946607659e-6,
];

/** From here on erf is 1 within half an ulp. */
const saturatesFrom = 4;

/** Below this, erf x is 2x/√π within the accuracy of a float. Above it, the subtraction from 1 leaves enough bits. */
const linearBelow = 2 ** -14;
const slopeAtZero = 2 / Math.sqrt(Math.PI);

/** erf x = ±(1 − e^−a·rate(a)) with a = |x|. One formula serves 0 to 4, because −ln(1 − erf) is smooth where erf saturates. */
export const erf = vectorFunction("erf", 1, (code, x) => {
  const result = inDoubles(code, [x], (inner, value) => {
    const a = keep(inner, atMost(abs(value), f64(saturatesFrom)));
    const complement = wideExp(inner, neg(mul(a, polynomial(a, rate))));
    const linear = mul(a, f64(slopeAtZero));
    const isLinear = isLess(a, f64(linearBelow));
    return select(isLinear, linear, keep(inner, sub(f64(1), complement)));
  });
  return withSignOf32(read(x), result);
});
