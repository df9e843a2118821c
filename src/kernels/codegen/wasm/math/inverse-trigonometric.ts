/** atan, atan2, asin and acos of four floats, computed in doubles from one arc tangent. */

import type { Code } from "../../../../driver/index.js";
import {
  abs,
  add,
  div,
  type Expression,
  f64,
  hasSign,
  isEqual,
  isLess,
  keep,
  mul,
  polynomial,
  select,
  sqrt,
  sub,
  withSignOf,
} from "./expression.js";
import { inDoubles } from "./halves.js";
import { vectorFunction } from "./vector-function.js";

/** atan(t) / t as a polynomial of t² on 0 ≤ t ≤ 1: a relative error of at most 2^−33.7. */
const ratio = [
  0.9999999999293037, -0.3333333129088999, 0.19999901102171555, -0.14283813255743194, 0.11091922963683302,
  -0.08974171958363882, 0.07228278345377252, -0.05395668057137172, 0.033826218952786875,
  -0.015828322749149415, 0.00473248419342192, -0.0006633954571104787,
];

/**
 * The angle of (x, y), from the quotient of the smaller and the larger magnitude. Equal magnitudes have the quotient 1, also if both are
 * infinite, and 0 if both are zero, as in C99.
 */
function wideAtan2(code: Code, yValue: Expression, xValue: Expression): Expression {
  const [y, x] = [keep(code, yValue), keep(code, xValue)];
  const [rise, run] = [keep(code, abs(y)), keep(code, abs(x))];
  const isSteep = keep(code, isLess(run, rise));
  const quotient = div(select(isSteep, run, rise), select(isSteep, rise, run));
  const ofEqual = select(isEqual(rise, f64(0)), f64(0), f64(1));
  const t = keep(code, select(isEqual(rise, run), ofEqual, quotient));
  const square = keep(code, mul(t, t));
  const angle = keep(code, mul(t, polynomial(square, ratio)));
  const inQuadrant = keep(code, select(isSteep, sub(f64(Math.PI / 2), angle), angle));
  const inHalf = select(hasSign(x), sub(f64(Math.PI), inQuadrant), inQuadrant);
  return withSignOf(y, inHalf);
}

/** √(1 − x²), without cancellation near ±1; NaN outside. */
function cosineOfSine(x: Expression): Expression {
  return sqrt(mul(sub(f64(1), x), add(f64(1), x)));
}

export const atan = vectorFunction("atan", 1, (code, x) =>
  inDoubles(code, [x], (inner, value) => wideAtan2(inner, value, f64(1))),
);

export const atan2 = vectorFunction("atan2", 2, (code, y, x) => inDoubles(code, [y, x], wideAtan2));

export const asin = vectorFunction("asin", 1, (code, x) =>
  inDoubles(code, [x], (inner, value) => wideAtan2(inner, value, cosineOfSine(value))),
);

export const acos = vectorFunction("acos", 1, (code, x) =>
  inDoubles(code, [x], (inner, value) => wideAtan2(inner, cosineOfSine(value), value)),
);
