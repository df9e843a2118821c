/** Parts of values that share memory: reading one, and a value of which one was overwritten. Their attributes are those of a `Region`. */

import { isSameSize, type Size } from "../sizes.js";
import type { CallContext, Translation } from "./call-context.js";

/** The axes along which the region is not all of the whole. */
function cutAxes(at: CallContext): readonly number[] {
  const { shape } = at.value(0);
  const [starts, sizes] = [at.sizes("starts"), at.sizes("sizes")];
  return shape.flatMap((size, axis) => (starts[axis] === 0 && isSameSize(size, sizes[axis]) ? [] : [axis]));
}

function slice(at: CallContext, name: string, axis: number, start: Size, end: Size): string {
  return at.node("Slice", [name, at.ints([start]), at.ints([end]), at.ints([axis])]);
}

/** The axes of a part in the order of the whole's axes; axes of size 1 come last. */
function inWholeOrder(order: readonly number[]): readonly number[] {
  const place = (axis: number): number => {
    const along = order[axis] ?? -1;
    return along < 0 ? Number.POSITIVE_INFINITY : along;
  };
  return [...order.keys()].sort((a, b) => place(a) - place(b) || a - b);
}

const isSorted = (axes: readonly number[]): boolean => axes.every((axis, index) => axis === index);

export const regionTranslations: Readonly<Record<string, Translation>> = {
  part: (at) => {
    const [starts, ends] = [at.sizes("starts"), at.sizes("ends")];
    const cut = cutAxes(at).reduce(
      (name, axis) => slice(at, name, axis, starts[axis] ?? 0, ends[axis] ?? 0),
      at.input(0),
    );
    const { shape } = at.output;
    const axes = inWholeOrder(at.numbers("order"));
    if (isSorted(axes)) return at.reshape(cut, shape);
    const sorted = at.reshape(
      cut,
      axes.map((axis) => shape[axis] ?? 1),
    );
    return at.transpose(
      sorted,
      shape.map((_, axis) => axes.indexOf(axis)),
    );
  },
  /** Operands: the whole, and the new part. */
  overwrite: (at) => {
    const [starts, ends] = [at.sizes("starts"), at.sizes("ends")];
    const axes = inWholeOrder(at.numbers("order"));
    const inOrder = isSorted(axes) ? at.input(1) : at.transpose(at.input(1), axes);
    const part = at.reshape(inOrder, at.sizes("sizes"));
    const replaced = (name: string, [axis, ...others]: readonly number[]): string => {
      if (axis === undefined) return part;
      const [start = 0, end = 0] = [starts[axis], ends[axis]];
      const middle = others.length > 0 ? replaced(slice(at, name, axis, start, end), others) : part;
      const size = at.value(0).shape[axis];
      const parts = [
        ...(start === 0 ? [] : [slice(at, name, axis, 0, start)]),
        middle,
        ...(isSameSize(end, size) ? [] : [slice(at, name, axis, end, Number.MAX_SAFE_INTEGER)]),
      ];
      return parts.length === 1 ? middle : at.node("Concat", parts, { axis: { int: axis } });
    };
    return replaced(at.input(0), cutAxes(at));
  },
};
