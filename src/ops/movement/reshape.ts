/** reshape and permute: views of the same memory. */

import { contiguousStrides, isContiguous, type Layout, type Strides } from "../device-array.js";
import { typeAt, type ViewOp } from "../op.js";
import { axisOf, badShape, formatShape, requireList, type Shape, sizeOf } from "../shape.js";

/** One size may be -1: it is computed from the number of elements. */
export const reshape: ViewOp<{ readonly shape: Shape }> = {
  kind: "view",
  name: "reshape",
  infer(operands, { shape }) {
    const type = typeAt("reshape", operands, 0);
    return [{ shape: completeShape(type.shape, shape), dtype: type.dtype }];
  },
  view(layout, { shape }) {
    const target = completeShape(layout.shape, shape);
    const strides = reshapedStrides(layout, target);
    return strides && { shape: target, strides };
  },
  gradient: (rule) => [rule.apply(reshape, [rule.upstream], { shape: rule.typeOf(0).shape })],
};

export const permute: ViewOp<{ readonly axes: readonly number[] }> = {
  kind: "view",
  name: "permute",
  infer(operands, { axes }) {
    const { shape, dtype } = typeAt("permute", operands, 0);
    return [{ shape: orderOf(axes, shape.length).map((axis) => shape[axis] ?? 1), dtype }];
  },
  view({ shape, strides }, { axes }) {
    const order = orderOf(axes, shape.length);
    return {
      shape: order.map((axis) => shape[axis] ?? 1),
      strides: order.map((axis) => strides[axis] ?? 0),
    };
  },
  gradient(rule) {
    const order = orderOf(rule.attributes.axes, rule.typeOf(0).shape.length);
    const back = order.map((_, axis) => order.indexOf(axis));
    return [rule.apply(permute, [rule.upstream], { axes: back })];
  },
};

function completeShape(from: Shape, to: Shape): Shape {
  requireList("reshape", to, "shape");
  const size = sizeOf(from);
  const open = to.filter((length) => length === -1).length;
  const fixedSize = sizeOf(to.filter((length) => length !== -1));
  const openLength = fixedSize > 0 ? size / fixedSize : 0;
  const shape = to.map((length) => (length === -1 ? openLength : length));
  const fits =
    open <= 1 &&
    shape.every((length) => Number.isSafeInteger(length) && length >= 0) &&
    sizeOf(shape) === size;
  if (fits) return shape;
  throw badShape(
    "reshape",
    open > 1
      ? `${formatShape(to)} has more than one -1; only one size can be inferred.`
      : `${formatShape(from)} has ${size} elements and ${formatShape(to)} asks for ${
          open > 0 ? `a multiple of ${fixedSize}` : fixedSize
        }.`,
  );
}

/** The strides of another shape over the same elements, if they exist: axes may be split and merged. */
function reshapedStrides(layout: Layout, target: Shape): Strides | undefined {
  if (isContiguous(layout)) return contiguousStrides(target);
  const { shape, strides } = layout;
  const result: number[] = new Array(target.length).fill(0);
  let targetAxis = target.length - 1;
  // A run is a group of neighbouring axes that merge to one stride. Each run has to be whole axes of the target.
  let run = { stride: strides.at(-1) ?? 1, size: 1 };
  for (let axis = shape.length - 1; axis >= 0; axis--) {
    run = { ...run, size: run.size * (shape[axis] ?? 1) };
    const before = strides[axis - 1] ?? 0;
    const continues = axis > 0 && (shape[axis - 1] === 1 || before === run.size * run.stride);
    if (continues) continue;
    let covered = 1;
    while (targetAxis >= 0 && (covered < run.size || target[targetAxis] === 1)) {
      result[targetAxis] = covered * run.stride;
      covered *= target[targetAxis] ?? 1;
      targetAxis -= 1;
    }
    if (covered !== run.size) return undefined;
    run = { stride: before, size: 1 };
  }
  return result;
}

function orderOf(axes: readonly number[], rank: number): number[] {
  requireList("permute", axes, "axes");
  const order = axes.map((axis) => axisOf("permute", axis, rank));
  if (order.length === rank && new Set(order).size === rank) return order;
  throw badShape(
    "permute",
    `axes ${formatShape(axes)} of a tensor of ${rank} axes; each has to be named once.`,
  );
}
