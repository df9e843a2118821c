/** erf and erfc of four floats. */

import {
  abs,
  add,
  atMost,
  div,
  f64,
  hasSign,
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

/**
 * e^(a²) erfc(a) as a polynomial of t = 3 / (3 + a) on 0 ≤ a ≤ 10.4: a relative error of at most 2^−34. Above, the float result is 0.
 */
const scaledComplement = [
  -2.8062005234284375e-6, 0.1881458708016564, 0.18696023290436933, 0.1864385758059797, 0.10949397353470176,
  0.30566803019171584, -0.3979144854753951, 1.0444592016964718, -1.426764543025682, 1.5316899786249794,
  -1.100099893954483, 0.4698886229334444, -0.10835836795524348, 0.010395610116125869,
];

/** From here on erfc is 0, and 2 on the other side. */
const vanishesFrom = 12;

/** erfc x = e^−x² · P(t) for x ≥ 0, and 2 − erfc(−x) below. The square of a float is exact in double. */
export const erfc = vectorFunction("erfc", 1, (code, x) =>
  inDoubles(code, [x], (inner, value) => {
    const a = keep(inner, atMost(abs(value), f64(vanishesFrom)));
    const t = keep(inner, div(f64(3), add(a, f64(3))));
    const power = wideExp(inner, neg(mul(a, a)));
    const right = keep(inner, mul(power, polynomial(t, scaledComplement)));
    return select(hasSign(value), sub(f64(2), right), right);
  }),
);
