/** The sign of a value as an expression, for the op `sign` and for gradients of |x|. */

import { type Expression, term } from "../../ir/index.js";

/** -1, 0 or 1; NaN stays NaN. */
export function signOf(x: Expression): Expression {
  const [one, zero] = [term.constant(1, x.type), term.constant(0, x.type)];
  const isPositive = term.select(term.gt(x, 0), one, zero);
  return term.select(term.lt(x, 0), term.constant(-1, x.type), term.select(term.eq(x, x), isPositive, x));
}
