/** The sign of a value as an expression, for the op `sign` and for gradients of |x|. */

import { type Expression, term } from "../../ir/index.js";

/** -1, 0 or 1; NaN stays NaN. */
export function signOf(x: Expression): Expression {
  const [one, zero] = [term.constant(1, x.type), term.constant(0, x.type)];
  const isPositive = term.select(term.gt(x, 0), one, zero);
  return term.select(term.lt(x, 0), term.constant(-1, x.type), term.select(term.eq(x, x), isPositive, x));
}

/** 1 if the sign bit is set, also of −0; 0 for NaN, whose sign no arithmetic shows. */
export function isNegative(x: Expression): Expression {
  if (x.type === "i32" || x.type === "i64") return term.lt(x, 0);
  const isNegativeZero = term.lt(term.div(term.constant(1, x.type), x), 0);
  return term.max(term.lt(x, 0), term.min(term.eq(x, 0), isNegativeZero));
}
