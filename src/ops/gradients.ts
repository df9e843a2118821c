/** Shared by gradient rules: a gradient has the shape and dtype of its operand. */

import { sumToShape } from "./broadcast.js";
import { cast } from "./elementwise/cast.js";
import type { GradientRule } from "./op.js";

/** Gives a gradient its operand's type: sums it over the axes along which the operand was broadcast, and casts it. */
export function fitToOperand<V, A>(rule: GradientRule<V, A>, value: V, index: number): V {
  const { shape, dtype } = rule.typeOf(index);
  const summed = sumToShape(rule, value, shape);
  return rule.valueType(summed).dtype === dtype ? summed : rule.apply(cast, [summed], { dtype });
}
