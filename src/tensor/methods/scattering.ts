/** Writes at the indices of other tensors, as methods that return copies. */

import { checkOptions, HoldfastError } from "../../errors/index.js";
import { dtypes } from "../../ir/index.js";
import { axisOf, broadcastShapes, formatShape, isSameShape, type Shape } from "../../ops/index.js";
import { arange, onesLike, zeros } from "../creation.js";
import { cat, where } from "../functions.js";
import type { Tensor } from "../tensor.js";
import type { Other } from "./arithmetic.js";
import { scan } from "./scans.js";

export type ScatterReduction = "sum" | "prod" | "mean" | "amax" | "amin";

const identities: Readonly<Record<ScatterReduction, number>> = {
  ...{ sum: 0, mean: 0, prod: 1 },
  ...{ amax: Number.NEGATIVE_INFINITY, amin: Number.POSITIVE_INFINITY },
};

const combinations: Readonly<Record<"prod" | "amax" | "amin", (a: Tensor, b: Tensor) => Tensor>> = {
  prod: (a, b) => a.mul(b),
  amax: (a, b) => a.maximum(b),
  amin: (a, b) => a.minimum(b),
};

/** The indices along an axis in ascending order, so that equal ones are neighbours: where a run of them begins and ends. */
function runsOf(
  index: Tensor,
  axis: number,
): { readonly sorted: Tensor; readonly order: Tensor; readonly isFirst: Tensor; readonly isLast: Tensor } {
  const { values: sorted, indices: order } = index.to("i32").sort(axis);
  const size = index.shape[axisOf("scatter", axis, index.ndim)] ?? 0;
  const end = sorted.narrow(axis, 0, Math.min(1, size)).ge(0);
  const changes = size > 1 ? [sorted.diff(1, axis).ne(0)] : [];
  return { sorted, order, isFirst: cat([end, ...changes], axis), isLast: cat([...changes, end], axis) };
}

/** The elements of a source that have an index, as a tensor of the target's dtype. */
function sourceFor(target: Tensor, index: Tensor, source: Other): Tensor {
  if (typeof source === "number") return target.newFull(index.shape, source);
  return index.shape.reduce<Tensor>((part, size, axis) => part.narrow(axis, 0, size), source);
}

/** True at positions that have an index. */
function isWritten(target: Tensor, axis: number, index: Tensor): Tensor {
  const counts = zeros(target.shape, { dtype: "i32", device: target.device });
  return counts.scatterAdd(axis, index, onesLike(index, { dtype: "i32" })).gt(0);
}

/** Expands a list of indices to one index for each element of a source. */
function alongAxis(index: Tensor, axis: number, source: Tensor): Tensor {
  const along = axisOf("index", axis, source.ndim);
  return index.reshape(source.shape.map((_, at) => (at === along ? -1 : 1))).expand(source.shape);
}

/** Indices that may be negative, converted to indices from 0 on. */
function fromEnd(index: Tensor, size: number): Tensor {
  return index.add(index.lt(0).to("i32").mul(size));
}

/** Places in the flattened axes. An index outside of its axis becomes one outside of all, so that the op that uses it names it. */
function placesOf(lists: readonly Tensor[], sizes: Shape): Tensor {
  const outside = sizes.reduce((product, size) => product * size, 1);
  return lists
    .map((index, axis) => {
      const size = sizes[axis] ?? 1;
      const stride = sizes.slice(axis + 1).reduce((product, other) => product * other, 1);
      const isInside = index.ge(-size).logicalAnd(index.lt(size));
      return fromEnd(index, size).mul(stride).where(isInside, outside);
    })
    .reduce((sum, place) => sum.add(place));
}

export const scatteringMethods = {
  /**
   * A copy with elements of `source`, or a number, at positions along an axis: the inverse of `gather`. If several elements have one position,
   * the last one is stored. The option `reduce` combines them with this tensor's elements instead: "add" or "multiply".
   *
   * @example
   * ```ts
   * import { device, tensor, zeros } from "holdfast";
   * const cpu = await device("cpu");
   * const index = tensor([2, 0], { dtype: "i32" });
   * console.log(zeros([3]).scatter(0, index, tensor([5, 7])).tolist()); // → [ 7, 0, 5 ]
   * cpu.close();
   * ```
   */
  scatter(
    this: Tensor,
    axis: number,
    index: Tensor,
    source: Other,
    options: { readonly reduce?: "add" | "multiply" } = {},
  ): Tensor {
    const { reduce } = checkOptions("scatter", options, { reduce: true });
    const values = sourceFor(this, index, source);
    if (reduce !== undefined) {
      if (reduce === "add") return this.scatterAdd(axis, index, values);
      if (reduce === "multiply") return this.scatterReduce(axis, index, values, "prod");
      throw new HoldfastError(
        "BAD_ARGUMENT",
        `scatter: reduce is ${String(reduce)}; pass "add" or "multiply". scatterReduce has more reductions.`,
      );
    }
    const runs = runsOf(index, axis);
    const isLast = runs.isLast;
    const ordered = values.gather(axis, runs.order).where(isLast, 0);
    const sums = this.newZeros(this.shape).scatterAdd(axis, runs.sorted, ordered);
    return sums.where(isWritten(this, axis, index), this);
  },
  /**
   * A copy in which elements of `source` are combined at positions along an axis: by "sum", "prod", "mean", "amax" or "amin". With
   * `includeSelf: false`, this tensor's elements at these positions do not count.
   *
   * @example
   * ```ts
   * import { device, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * const index = tensor([0, 0, 1], { dtype: "i32" });
   * console.log(tensor([1, 9]).scatterReduce(0, index, tensor([3, 5, 2]), "amax").tolist()); // → [ 5, 9 ]
   * cpu.close();
   * ```
   */
  scatterReduce(
    this: Tensor,
    axis: number,
    index: Tensor,
    source: Tensor,
    reduce: ScatterReduction,
    options: { readonly includeSelf?: boolean } = {},
  ): Tensor {
    const { includeSelf = true } = checkOptions("scatterReduce", options, { includeSelf: true });
    const written = isWritten(this, axis, index);
    const values = sourceFor(this, index, source);
    const start = includeSelf ? this : this.where(written.logicalNot(), identities[reduce]);
    if (reduce === "sum") return start.scatterAdd(axis, index, values);
    if (reduce === "mean") {
      const ones = this.newOnes(index.shape);
      const own = includeSelf ? this.newOnes(this.shape) : written.logicalNot().to(this.dtype);
      const total = start.scatterAdd(axis, index, values);
      const counts = own.scatterAdd(axis, index, ones);
      return dtypes[this.dtype].kind === "float" ? total.div(counts) : total.floorDivide(counts);
    }
    const runs = runsOf(index, axis);
    const combine = combinations[reduce];
    const [, combined] = scan(
      "scatterReduce",
      [runs.isFirst, values.gather(axis, runs.order)] as const,
      axis,
      ([startsBefore, before], [starts, value]) =>
        [startsBefore.logicalOr(starts), value.where(starts, combine(before, value))] as const,
    );
    const ends = combined.where(runs.isLast, 0);
    const results = this.newZeros(this.shape).scatterAdd(axis, runs.sorted, ends);
    return combine(start, results).where(written, this);
  },
  /**
   * A copy with the slices of `source`, times `alpha`, added at a list of indices of an axis.
   *
   * @example
   * ```ts
   * import { device, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * const index = tensor([0, 0], { dtype: "i32" });
   * console.log(tensor([1, 2]).indexAdd(0, index, tensor([3, 4]), { alpha: 2 }).tolist()); // → [ 15, 2 ]
   * cpu.close();
   * ```
   */
  indexAdd(
    this: Tensor,
    axis: number,
    index: Tensor,
    source: Tensor,
    options: { readonly alpha?: number } = {},
  ): Tensor {
    const { alpha = 1 } = checkOptions("indexAdd", options, { alpha: true });
    return this.scatterAdd(axis, alongAxis(index, axis, source), alpha === 1 ? source : source.mul(alpha));
  },
  /**
   * A copy with the slices of `source` at a list of indices of an axis.
   *
   * @example
   * ```ts
   * import { device, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * const index = tensor([1], { dtype: "i32" });
   * console.log(tensor([1, 2]).indexCopy(0, index, tensor([7])).tolist()); // → [ 1, 7 ]
   * cpu.close();
   * ```
   */
  indexCopy(this: Tensor, axis: number, index: Tensor, source: Tensor): Tensor {
    return this.scatter(axis, alongAxis(index, axis, source), source);
  },
  /**
   * A copy with a value in the slices at a list of indices of an axis.
   *
   * @example
   * ```ts
   * import { device, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * const index = tensor([1], { dtype: "i32" });
   * console.log(tensor([[1, 2], [3, 4]]).indexFill(1, index, 0).tolist()); // → [ [ 1, 0 ], [ 3, 0 ] ]
   * cpu.close();
   * ```
   */
  indexFill(this: Tensor, axis: number, index: Tensor, value: Other): Tensor {
    const along = axisOf("indexFill", axis, this.ndim);
    const counts = zeros([this.shape[along] ?? 0], { dtype: "i32", device: this.device });
    const hits = counts.scatterAdd(0, index, onesLike(index, { dtype: "i32" })).gt(0);
    return this.maskedFill(hits.reshape(this.shape.map((_, at) => (at === along ? -1 : 1))), value);
  },
  /**
   * A copy with the elements of `source`, in their order, where a mask is true.
   *
   * @example
   * ```ts
   * import { device, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * const mask = tensor([true, false, true]);
   * console.log(tensor([1, 2, 3]).maskedScatter(mask, tensor([7, 8])).tolist()); // → [ 7, 2, 8 ]
   * cpu.close();
   * ```
   */
  maskedScatter(this: Tensor, mask: Tensor, source: Tensor): Tensor {
    const where = mask.expand(this.shape);
    const places = where
      .flatten()
      .cumsum(0)
      .sub(1)
      .clamp(0, Math.max(0, source.numel - 1));
    const values = source.flatten().indexSelect(0, places).reshape(this.shape);
    return values.where(where, this);
  },
  /**
   * The elements of the flattened tensor at indices, in their shape. Negative indices count from the end.
   *
   * @example
   * ```ts
   * import { device, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * console.log(tensor([[1, 2], [3, 4]]).take(tensor([3, -4], { dtype: "i32" })).tolist()); // → [ 4, 1 ]
   * cpu.close();
   * ```
   */
  take(this: Tensor, index: Tensor): Tensor {
    return this.flatten().indexSelect(0, fromEnd(index, this.numel).flatten()).reshape(index.shape);
  },
  /**
   * A copy with elements of `source` at indices of the flattened tensor. With `accumulate: true`, they are added to the elements there.
   *
   * @example
   * ```ts
   * import { device, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * const index = tensor([3, -4], { dtype: "i32" });
   * console.log(tensor([[1, 2], [3, 4]]).put(index, tensor([7, 8])).tolist()); // → [ [ 8, 2 ], [ 3, 7 ] ]
   * cpu.close();
   * ```
   */
  put(this: Tensor, index: Tensor, source: Tensor, options: { readonly accumulate?: boolean } = {}): Tensor {
    const { accumulate = false } = checkOptions("put", options, { accumulate: true });
    const [flat, at, values] = [this.flatten(), fromEnd(index, this.numel).flatten(), source.flatten()];
    return (accumulate ? flat.scatterAdd(0, at, values) : flat.scatter(0, at, values)).reshape(this.shape);
  },
  /**
   * A copy with `values` at the places of the leading axes that lists of indices name, as in `x[i, j] = values`. The lists broadcast, negative
   * indices count from the end, and a boolean mask stands for the indices where it is true. With `accumulate: true`, values are added.
   *
   * @example
   * ```ts
   * import { device, tensor, zeros } from "holdfast";
   * const cpu = await device("cpu");
   * const [row, column] = [tensor([0, 1], { dtype: "i32" }), tensor([-1, 0], { dtype: "i32" })];
   * console.log(zeros([2, 3]).indexPut([row, column], tensor([7, 8])).tolist()); // → [ [ 0, 0, 7 ], [ 8, 0, 0 ] ]
   * cpu.close();
   * ```
   */
  indexPut(
    this: Tensor,
    indices: readonly Tensor[],
    values: Tensor,
    options: { readonly accumulate?: boolean } = {},
  ): Tensor {
    const { accumulate = false } = checkOptions("indexPut", options, { accumulate: true });
    const lists = indices.flatMap((index) => (index.dtype === "bool" ? where(index) : [index]));
    if (lists.length < 1 || lists.length > this.ndim) {
      throw new HoldfastError(
        "BAD_ARGUMENT",
        `indexPut: indices of ${lists.length} axes, but the tensor has ${this.ndim}. Pass a list of indices for each leading axis.`,
        { numbers: { indices: lists.length, axes: this.ndim } },
      );
    }
    const places = broadcastShapes(
      "indexPut",
      lists.map(({ shape }) => shape),
    );
    const [sizes, rest] = [this.shape.slice(0, lists.length), this.shape.slice(lists.length)];
    const at = placesOf(lists, sizes).expand(places).flatten();
    const source = values
      .to(this.dtype)
      .expand([...places, ...rest])
      .reshape([-1, ...rest]);
    const rows = this.reshape([-1, ...rest]);
    const result = accumulate ? rows.indexAdd(0, at, source) : rows.indexCopy(0, at, source);
    return result.reshape(this.shape);
  },
  /**
   * `gather` with operands that broadcast along the other axes. Without an axis, it gathers from the flattened tensor.
   *
   * @example
   * ```ts
   * import { device, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * const x = tensor([[3, 1, 2]]);
   * console.log(x.takeAlongDim(x.argsort(1), 1).tolist()); // → [ [ 1, 2, 3 ] ]
   * cpu.close();
   * ```
   */
  takeAlongDim(this: Tensor, index: Tensor, axis?: number): Tensor {
    if (axis === undefined) return this.flatten().gather(0, index.flatten());
    const along = axisOf("takeAlongDim", axis, this.ndim);
    const other = (shape: Shape): Shape => shape.with(along, 1);
    const shape = broadcastShapes("takeAlongDim", [other(this.shape), other(index.shape)]);
    const sizes = (x: Tensor): Shape => shape.with(along, x.shape[along] ?? 1);
    return this.expand(sizes(this)).gather(along, index.expand(sizes(index)));
  },
  /**
   * A copy with `source` at one index of an axis.
   *
   * @example
   * ```ts
   * import { device, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * console.log(tensor([[1, 2], [3, 4]]).selectScatter(tensor([8, 9]), 0, 1).tolist()); // → [ [ 1, 2 ], [ 8, 9 ] ]
   * cpu.close();
   * ```
   */
  selectScatter(this: Tensor, source: Tensor, axis: number, index: number): Tensor {
    const along = axisOf("selectScatter", axis, this.ndim);
    const size = this.shape[along] ?? 0;
    const at = index < 0 ? index + size : index;
    const slice = source.expand(this.select(along, index).shape).unsqueeze(along);
    return cat(
      [this.narrow(along, 0, at), slice.to(this.dtype), this.narrow(along, at + 1, size - at - 1)],
      along,
    );
  },
  /**
   * A copy with `source` on a diagonal of two axes, as `diagonal` selects it.
   *
   * @example
   * ```ts
   * import { device, tensor, zeros } from "holdfast";
   * const cpu = await device("cpu");
   * console.log(zeros([2, 3]).diagonalScatter(tensor([8, 9]), 1).tolist()); // → [ [ 0, 8, 0 ], [ 0, 0, 9 ] ]
   * cpu.close();
   * ```
   */
  diagonalScatter(this: Tensor, source: Tensor, offset = 0, axis1 = 0, axis2 = 1): Tensor {
    const shape = this.diagonal(offset, axis1, axis2).shape;
    if (!isSameShape(source.shape, shape)) {
      throw new HoldfastError(
        "BAD_SHAPE",
        `diagonalScatter: the source is ${formatShape(source.shape)}, and the diagonal ${formatShape(shape)}. Pass a source of that shape.`,
      );
    }
    const [first, second] = [axisOf("diagonal", axis1, this.ndim), axisOf("diagonal", axis2, this.ndim)];
    const place = (axis: number): Tensor =>
      arange(0, this.shape[axis] ?? 0, 1, { device: this.device }).reshape(
        this.shape.map((_, at) => (at === axis ? -1 : 1)),
      );
    const isOn = place(first).add(offset).eq(place(second));
    // The source as elements of this shape: the place of a row on the diagonal is its index, less those above the diagonal.
    const rows = place(first)
      .sub(Math.max(0, -offset))
      .clamp(0, Math.max(0, (shape.at(-1) ?? 0) - 1));
    const spread = source.to(this.dtype).movedim(-1, first < second ? first : first - 1);
    const wide = spread.unsqueeze(second);
    if (source.numel === 0) return this.clone();
    return wide.indexSelect(first, rows.flatten()).where(isOn, this);
  },
  /**
   * A copy with `source` in a slice of an axis.
   *
   * @example
   * ```ts
   * import { device, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * console.log(tensor([1, 2, 3, 4]).sliceScatter(tensor([8, 9]), 0, { start: 1, step: 2 }).tolist()); // → [ 1, 8, 3, 9 ]
   * cpu.close();
   * ```
   */
  sliceScatter(
    this: Tensor,
    source: Tensor,
    axis = 0,
    options: { readonly start?: number; readonly end?: number; readonly step?: number } = {},
  ): Tensor {
    const {
      start = 0,
      end,
      step = 1,
    } = checkOptions("sliceScatter", options, { start: true, end: true, step: true });
    const along = axisOf("sliceScatter", axis, this.ndim);
    const size = this.shape[along] ?? 0;
    const clampIndex = (index: number): number =>
      Math.min(size, Math.max(0, index < 0 ? index + size : index));
    const [first, last] = [clampIndex(start), clampIndex(end ?? size)];
    const index = arange(first, Math.max(first, last), step, { device: this.device });
    return this.indexCopy(along, index, source.expand(this.shape.with(along, index.numel)).to(this.dtype));
  },
};
