/** expand and sum. Each is the other's gradient, so they share a file: two files would import each other. */

import { broadcastStrides } from "./device-array.js";
import { cast } from "./elementwise/cast.js";
import { reshape } from "./movement/reshape.js";
import { arrayAt, type GradientRule, type KernelOp, typeAt, type ViewOp } from "./op.js";
import { lowerReduction } from "./reduction/reduce.js";
import type { Reduction } from "./reduction/reduction.js";
import { type ReductionAttributes, reducedStrides, restoreAxes } from "./reduction/rule.js";
import { sumDtype } from "./reduction/sum-dtype.js";
import {
  axesOf,
  badShape,
  formatShape,
  isSameShape,
  reducedShape,
  requireList,
  type Shape,
} from "./shape.js";

/** Stretches axes of size 1, and adds leading axes. A size of -1 keeps the operand's size. */
export const expand: ViewOp<{ readonly shape: Shape }> = {
  kind: "view",
  name: "expand",
  infer(operands, { shape }) {
    const type = typeAt("expand", operands, 0);
    return [{ shape: expandedShape(type.shape, shape), dtype: type.dtype }];
  },
  view(layout, { shape }) {
    const target = expandedShape(layout.shape, shape);
    return { shape: target, strides: broadcastStrides(layout, target) };
  },
  gradient: (rule) => [sumToShape(rule, rule.upstream, rule.typeOf(0).shape)],
};

export const sumReduction: Reduction = { name: "sum", op: "add", value: (x) => x, identity: 0 };

/** The sum of booleans and of integers of up to 32 bits is i32; PyTorch's is i64. */
export const sum: KernelOp<ReductionAttributes> = {
  kind: "kernel",
  name: "sum",
  infer(operands, { axes, keepsAxes = false }) {
    const { shape, dtype } = typeAt("sum", operands, 0);
    return [
      {
        shape: reducedShape(shape, axesOf("sum", axes, shape.length), keepsAxes),
        dtype: sumDtype(dtype),
      },
    ];
  },
  outputStrides: reducedStrides,
  gradient: (rule) => [expandToOperand(rule, "sum", rule.upstream)],
  lower(lowering, operands, [output], { axes }) {
    const input = arrayAt(operands, 0);
    if (output) {
      lowerReduction(lowering, sumReduction, input, axesOf("sum", axes, input.shape.length), output);
    }
  },
};

/** Expands a value of a reduction's result shape to the operand's shape and dtype. */
export function expandToOperand<V>(rule: GradientRule<V, ReductionAttributes>, op: string, value: V): V {
  const { shape, dtype } = rule.typeOf(0);
  const expanded = rule.apply(expand, [restoreAxes(rule, op, value)], { shape });
  return rule.valueType(expanded).dtype === dtype ? expanded : rule.apply(cast, [expanded], { dtype });
}

/** Sums a value over the axes along which this shape was broadcast to it. The result has this shape. */
export function sumToShape<V, A>({ apply, valueType }: GradientRule<V, A>, value: V, shape: Shape): V {
  const { shape: broadcastShape } = valueType(value);
  if (isSameShape(broadcastShape, shape)) return value;
  const added = broadcastShape.length - shape.length;
  const axes = broadcastShape.flatMap((size, axis) => {
    const isStretched = axis < added || (shape[axis - added] === 1 && size !== 1);
    return isStretched ? [axis] : [];
  });
  const summed = axes.length > 0 ? apply(sum, [value], { axes, keepsAxes: true }) : value;
  return added > 0 ? apply(reshape, [summed], { shape }) : summed;
}

function expandedShape(from: Shape, to: Shape): Shape {
  requireList("expand", to, "shape");
  const added = to.length - from.length;
  const shape = to.map((size, axis) => (size === -1 && axis >= added ? (from[axis - added] ?? 1) : size));
  const fits =
    added >= 0 &&
    shape.every((size, axis) => {
      const operandSize = axis < added ? 1 : (from[axis - added] ?? 1);
      return Number.isSafeInteger(size) && size >= 0 && (operandSize === size || operandSize === 1);
    });
  if (fits) return shape;
  throw badShape(
    "expand",
    `${formatShape(from)} does not broadcast to ${formatShape(to)}: counted from the last axis, each size must be equal to the target's, or 1.`,
  );
}
