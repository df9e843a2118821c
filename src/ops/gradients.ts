/** What gradient rules share: a gradient has the shape and dtype of what it belongs to. */

import { cast } from "./elementwise/cast.js";
import { reshape } from "./movement/reshape.js";
import type { GradientRule } from "./op.js";
import { sum } from "./reduction/sum.js";
import { isSameShape, type Shape } from "./shape.js";

/** Brings a gradient to its operand's type: summed over the axes along which the operand was stretched, and cast. */
export function fitTo<V, A>(rule: GradientRule<V, A>, value: V, index: number): V {
  const { shape, dtype } = rule.typeOf(index);
  const summed = sumTo(rule, value, shape);
  return rule.valueType(summed).dtype === dtype ? summed : rule.apply(cast, [summed], { dtype });
}

/** Adds up what was stretched, until a value has this shape. */
export function sumTo<V, A>({ apply, valueType }: GradientRule<V, A>, value: V, shape: Shape): V {
  const own = valueType(value).shape;
  if (isSameShape(own, shape)) return value;
  const added = own.length - shape.length;
  const axes = own.flatMap((size, axis) => {
    const isStretched = axis < added || (shape[axis - added] === 1 && size !== 1);
    return isStretched ? [axis] : [];
  });
  const summed = axes.length > 0 ? apply(sum, [value], { axes, keepsAxes: true }) : value;
  return added > 0 ? apply(reshape, [summed], { shape }) : summed;
}
