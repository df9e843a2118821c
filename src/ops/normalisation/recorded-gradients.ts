/** The gradients of normalisations made of entries that have gradients too. They compute statistics again. */

import { sumToShape } from "../broadcast.js";
import { add, mul, sub } from "../elementwise/arithmetic.js";
import { cast } from "../elementwise/cast.js";
import { rsqrt, square } from "../elementwise/functions.js";
import { reshape } from "../movement/reshape.js";
import type { GradientRule, Gradients } from "../op.js";
import { mean } from "../reduction/mean.js";
import type { Shape } from "../shape.js";

export interface RecordedNormalisation {
  /** The shape of x in which statistics are over whole axes. Default: its own. */
  readonly shape?: Shape;
  /** The axes of statistics. */
  readonly axes: readonly number[];
  /** The shape in which weight and bias broadcast to `shape`. */
  readonly affineShape: Shape;
  readonly eps: number;
  /** True if the mean is subtracted. */
  readonly isCentred: boolean;
}

/** The gradients of x, weight and bias: operands 0 to 2. */
export function recordedGradients<V, A>(
  rule: GradientRule<V, A>,
  { shape = rule.typeOf(0).shape, axes, affineShape, eps, isCentred }: RecordedNormalisation,
): Gradients<V> {
  const { apply } = rule;
  const upstream = apply(reshape, [rule.upstream], { shape });
  const rowMean = (value: V): V => apply(mean, [value], { axes, keepsAxes: true });
  const normalize = (): { readonly normalized: V; readonly inverse: V } => {
    const x = apply(reshape, [rule.operand(0)], { shape });
    const centred = isCentred ? apply(sub, [x, rowMean(x)]) : x;
    const inverse = apply(rsqrt, [apply(add, [rowMean(apply(square, [centred])), eps])]);
    return { normalized: apply(mul, [centred, inverse]), inverse };
  };
  const statistics = rule.needs(0) || rule.needs(1) ? normalize() : undefined;
  const inputGradient = ({ normalized, inverse }: ReturnType<typeof normalize>): V => {
    const weight = () => apply(reshape, [rule.operand(1)], { shape: affineShape });
    const gradient = rule.operandCount > 1 ? apply(mul, [upstream, weight()]) : upstream;
    const projection = apply(mul, [normalized, rowMean(apply(mul, [gradient, normalized]))]);
    const centred = isCentred ? apply(sub, [gradient, rowMean(gradient)]) : gradient;
    return apply(mul, [apply(sub, [centred, projection]), inverse]);
  };
  return [
    statistics && rule.needs(0) ? fit(inputGradient(statistics), 0) : undefined,
    statistics && rule.needs(1)
      ? fit(sumToShape(rule, apply(mul, [upstream, statistics.normalized]), affineShape), 1)
      : undefined,
    rule.needs(2) ? fit(sumToShape(rule, upstream, affineShape), 2) : undefined,
  ];

  function fit(value: V, index: number): V {
    const { shape: operandShape, dtype } = rule.typeOf(index);
    const reshaped = apply(reshape, [value], { shape: operandShape });
    return rule.valueType(reshaped).dtype === dtype ? reshaped : apply(cast, [reshaped], { dtype });
  }
}

/** The shape in which a value for each channel, axis 1, broadcasts to an array. */
export function perChannelShape(shape: Shape): Shape {
  return shape.map((size, axis) => (axis === 1 ? size : 1));
}
