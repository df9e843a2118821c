/** Pooling functions, with PyTorch's layouts: [N, C, L], [N, C, H, W] and [N, C, D, H, W], or without the batch. */

import { checkOptions, HoldfastError, type OptionNames } from "../errors/index.js";
import { dtypes } from "../ir/index.js";
import {
  type AveragePoolAttributes,
  avgPool1d as avgPool1dOp,
  avgPool2d as avgPool2dOp,
  avgPool3d as avgPool3dOp,
  maxPool1d as maxPool1dOp,
  maxPool2d as maxPool2dOp,
  maxPool3d as maxPool3dOp,
  type Op,
  type PerAxis,
  type PoolAttributes,
  padsOf,
  poolWindows,
  type Windows,
  windows as windowsOp,
} from "../ops/index.js";
import { fromTyped } from "./creation.js";
import type { Extremes } from "./methods/extremes.js";
import type { Tensor } from "./tensor.js";

/**
 * `stride` (default: the kernel's size), `padding`, `dilation`, and `ceilMode`: a last window may then reach beyond the padding, so that no
 * element is left out.
 */
export type PoolOptions = Omit<PoolAttributes, "kernel">;

/** Options of max pooling. */
export interface MaxPoolOptions<WithIndices extends boolean = boolean> extends PoolOptions {
  /** Return the place of each maximum too, as an index into its flattened image: `{ values, indices }`, as `max` does. Default: false. */
  readonly returnIndices?: WithIndices;
}

/** What max pooling returns: the maximums, or `{ values, indices }` if the indices are wanted. */
export type MaxPoolResult<WithIndices extends boolean> = WithIndices extends true ? Extremes : Tensor;

/** Options of average pooling. It has no dilation. */
export interface AvgPoolOptions extends Omit<PoolOptions, "dilation"> {
  /** Divide by the size of the window, padding included, and not by the number of its elements that are in the input. Default: true. */
  readonly countIncludePad?: boolean;
  /** Divide by this number instead. */
  readonly divisorOverride?: number;
}

export const maxPoolOptionNames: OptionNames<MaxPoolOptions> = {
  stride: true,
  padding: true,
  dilation: true,
  ceilMode: true,
  returnIndices: true,
};

export const avgPoolOptionNames: OptionNames<AvgPoolOptions> = {
  stride: true,
  padding: true,
  ceilMode: true,
  countIncludePad: true,
  divisorOverride: true,
};

/**
 * The maximum of every window along an input [N, C, L] or [C, L]. The gradient goes to the first of equal elements.
 *
 * @example
 * ```ts
 * import { device, maxPool1d, tensor } from "holdfast";
 * const cpu = await device("cpu");
 * console.log(maxPool1d(tensor([[1, 3, 2, 5, 4]]), 2).tolist()); // → [ [ 3, 5 ] ]
 * cpu.close();
 * ```
 */
export function maxPool1d<WithIndices extends boolean = false>(
  x: Tensor,
  kernel: PerAxis,
  options: MaxPoolOptions<WithIndices> = {},
): MaxPoolResult<WithIndices> {
  return maxPool(maxPool1dOp, 1, x, kernel, options);
}

/**
 * The maximum of every window over an input [N, C, H, W] or [C, H, W]. The gradient goes to the first of equal
 * elements.
 *
 * @example
 * ```ts
 * import { arange, device, maxPool2d } from "holdfast";
 * const cpu = await device("cpu");
 * console.log(maxPool2d(arange(16).to("f32").reshape([1, 4, 4]), 2).tolist()); // → [ [ [ 5, 7 ], [ 13, 15 ] ] ]
 * cpu.close();
 * ```
 */
export function maxPool2d<WithIndices extends boolean = false>(
  x: Tensor,
  kernel: PerAxis,
  options: MaxPoolOptions<WithIndices> = {},
): MaxPoolResult<WithIndices> {
  return maxPool(maxPool2dOp, 2, x, kernel, options);
}

/**
 * The maximum of every window over an input [N, C, D, H, W] or [C, D, H, W]. The gradient goes to the first of equal elements.
 *
 * @example
 * ```ts
 * import { arange, device, maxPool3d } from "holdfast";
 * const cpu = await device("cpu");
 * console.log(maxPool3d(arange(8).to("f32").reshape([1, 2, 2, 2]), 2).item()); // → 7
 * cpu.close();
 * ```
 */
export function maxPool3d<WithIndices extends boolean = false>(
  x: Tensor,
  kernel: PerAxis,
  options: MaxPoolOptions<WithIndices> = {},
): MaxPoolResult<WithIndices> {
  return maxPool(maxPool3dOp, 3, x, kernel, options);
}

/**
 * The mean of every window along an input [N, C, L] or [C, L]; padding counts as zeros.
 *
 * @example
 * ```ts
 * import { avgPool1d, device, tensor } from "holdfast";
 * const cpu = await device("cpu");
 * console.log(avgPool1d(tensor([[2, 4, 6, 8]]), 2).tolist()); // → [ [ 3, 7 ] ]
 * cpu.close();
 * ```
 */
export function avgPool1d(x: Tensor, kernel: PerAxis, options: AvgPoolOptions = {}): Tensor {
  return averagePool(avgPool1dOp, 1, x, kernel, options);
}

/**
 * The mean of every window over an input [N, C, H, W] or [C, H, W]; padding counts as zeros.
 *
 * @example
 * ```ts
 * import { avgPool2d, device, tensor } from "holdfast";
 * const cpu = await device("cpu");
 * console.log(avgPool2d(tensor([[[1, 2], [3, 6]]]), 2).tolist()); // → [ [ [ 3 ] ] ]
 * cpu.close();
 * ```
 */
export function avgPool2d(x: Tensor, kernel: PerAxis, options: AvgPoolOptions = {}): Tensor {
  return averagePool(avgPool2dOp, 2, x, kernel, options);
}

/**
 * The mean of every window over an input [N, C, D, H, W] or [C, D, H, W]; padding counts as zeros.
 *
 * @example
 * ```ts
 * import { arange, avgPool3d, device } from "holdfast";
 * const cpu = await device("cpu");
 * console.log(avgPool3d(arange(8).to("f32").reshape([1, 2, 2, 2]), 2).item()); // → 3.5
 * cpu.close();
 * ```
 */
export function avgPool3d(x: Tensor, kernel: PerAxis, options: AvgPoolOptions = {}): Tensor {
  return averagePool(avgPool3dOp, 3, x, kernel, options);
}

function maxPool<WithIndices extends boolean>(
  op: Op<PoolAttributes>,
  rank: number,
  x: Tensor,
  kernel: PerAxis,
  options: MaxPoolOptions<WithIndices>,
): MaxPoolResult<WithIndices> {
  const { returnIndices = false, ...window } = checkOptions(op.name, options, maxPoolOptionNames);
  const attributes = { kernel, ...window };
  const [values, offsets] = x.device.applyAll(op, [x], attributes);
  const result =
    returnIndices && offsets
      ? {
          values,
          indices: indicesOf(offsets, x.shape.slice(-rank), poolWindows(op.name, rank, x, attributes)),
        }
      : values;
  return result as MaxPoolResult<WithIndices>;
}

/** The index into the flattened image, from each maximum's offset in its window. */
function indicesOf(offsets: Tensor, sizes: readonly number[], geometry: Windows): Tensor {
  const { kernel, dilation, count } = geometry;
  const { device } = offsets;
  let rest = offsets.to("i32");
  const inWindow = kernel.map((_, axis) => {
    const later = product(kernel.slice(axis + 1));
    const offset = later === 1 ? rest : rest.floorDivide(later);
    if (later > 1) rest = rest.sub(offset.mul(later));
    return offset.mul((dilation[axis] ?? 1) * product(sizes.slice(axis + 1)));
  });
  return inWindow.reduce(
    (sum, index) => sum.add(index),
    fromTyped(startsOf(sizes, geometry), count, { device }),
  );
}

/** The index at which each window begins, before any element in the padding. */
function startsOf(sizes: readonly number[], { stride, padding, count }: Windows): Int32Array<ArrayBuffer> {
  const starts = count.reduce<readonly number[]>(
    (all, windows, axis) => {
      const step = product(sizes.slice(axis + 1));
      const along = Array.from(
        { length: windows },
        (_, window) => (window * (stride[axis] ?? 1) - (padding[axis] ?? 0)) * step,
      );
      return all.flatMap((before) => along.map((start) => before + start));
    },
    [0],
  );
  return Int32Array.from(starts);
}

function product(numbers: readonly number[]): number {
  return numbers.reduce((result, number) => result * number, 1);
}

function averagePool(
  op: Op<AveragePoolAttributes>,
  rank: number,
  x: Tensor,
  kernel: PerAxis,
  options: AvgPoolOptions,
): Tensor {
  const {
    countIncludePad = true,
    divisorOverride,
    ...window
  } = checkOptions(op.name, options, avgPoolOptionNames);
  if (divisorOverride === 0)
    throw new HoldfastError("BAD_ARGUMENT", `${op.name}: divisorOverride is 0. Pass another number.`);
  const geometry = poolWindows(op.name, rank, x, { kernel, ...window });
  const sizes = x.shape.slice(-rank);
  const counts = sizes.map((size, axis) => countsAlong(geometry, axis, size, countIncludePad));
  const isMean = counts.every((list, axis) => list.every((count) => count === geometry.kernel[axis]));
  if (isMean && divisorOverride === undefined) {
    const { ceilMode: _, ...attributes } = window;
    return x.device.apply(op, [x], { kernel, ...attributes });
  }
  // Half floats are divided in f32 and rounded once.
  const { compute } = dtypes[x.dtype];
  const padded = x.to(compute).pad(padsOf(x.shape, geometry));
  const { kernel: sizesOfKernel, stride } = geometry;
  const windowed = x.device.apply(windowsOp, [padded], { kernel: sizesOfKernel, stride });
  const sums = windowed.sum(sizesOfKernel.map((_, axis) => axis - rank));
  const means = sums.div(divisorOverride ?? divisorsOf(counts, sums));
  return means.to(x.dtype);
}

/** The number of elements along an axis that count in each window. */
function countsAlong(geometry: Windows, axis: number, size: number, includesPadding: boolean): number[] {
  const [kernel = 1, stride = 1, padding = 0, count = 0] = [
    ...[geometry.kernel[axis], geometry.stride[axis], geometry.padding[axis], geometry.count[axis]],
  ];
  return Array.from({ length: count }, (_, window) => {
    const start = window * stride - padding;
    const end = Math.min(start + kernel, size + padding);
    return includesPadding ? end - start : Math.min(end, size) - Math.max(start, 0);
  });
}

/** The product of the counts along all axes, for each window. */
function divisorsOf(counts: readonly (readonly number[])[], { dtype, device }: Tensor): Tensor {
  const products = counts.reduce<readonly number[]>(
    (all, list) => all.flatMap((before) => list.map((count) => before * count)),
    [1],
  );
  const values = Float64Array.from(products);
  return fromTyped(
    values,
    counts.map(({ length }) => length),
    { device, dtype },
  );
}
