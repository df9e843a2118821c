/** Adaptive pooling: as many windows as the size of the result. */

import { checkOptions, HoldfastError } from "../../errors/index.js";
import { formatShape } from "../../ops/index.js";
import {
  avgPool1d,
  avgPool2d,
  avgPool3d,
  fromTyped,
  type MaxPoolOptions,
  type MaxPoolResult,
  maxPool1d,
  maxPool2d,
  maxPool3d,
  type Tensor,
} from "../../tensor/index.js";

/** The size of an adaptive pool: one number for all axes, or one for each; null keeps an axis. */
export type AdaptiveSize = number | readonly (number | null)[];

/** Options of adaptive max pooling. */
export type AdaptiveMaxPoolOptions<WithIndices extends boolean = boolean> = Pick<
  MaxPoolOptions<WithIndices>,
  "returnIndices"
>;

/**
 * The mean of as many windows as the size along [N, C, L] or [C, L]; null keeps the length.
 *
 * @example
 * ```ts
 * import { device, nn, tensor } from "holdfast";
 * const cpu = await device("cpu");
 * console.log(nn.functional.adaptiveAvgPool1d(tensor([[1, 2, 3]]), 2).tolist()); // → [ [ 1.5, 2.5 ] ]
 * cpu.close();
 * ```
 */
export function adaptiveAvgPool1d(x: Tensor, size: AdaptiveSize): Tensor {
  return adaptiveAvgPool(1, x, size);
}

/**
 * The mean of as many windows as the size over [N, C, H, W] or [C, H, W]; null keeps an axis.
 *
 * @example
 * ```ts
 * import { device, nn, tensor } from "holdfast";
 * const cpu = await device("cpu");
 * console.log(nn.functional.adaptiveAvgPool2d(tensor([[[1, 2], [3, 6]]]), 1).tolist()); // → [ [ [ 3 ] ] ]
 * cpu.close();
 * ```
 */
export function adaptiveAvgPool2d(x: Tensor, size: AdaptiveSize): Tensor {
  return adaptiveAvgPool(2, x, size);
}

/**
 * The mean of as many windows as the size over [N, C, D, H, W] or [C, D, H, W]; null keeps an axis.
 *
 * @example
 * ```ts
 * import { device, nn, ones } from "holdfast";
 * const cpu = await device("cpu");
 * console.log(nn.functional.adaptiveAvgPool3d(ones([1, 4, 5, 6]), [2, null, 1]).shape); // → [ 1, 2, 5, 1 ]
 * cpu.close();
 * ```
 */
export function adaptiveAvgPool3d(x: Tensor, size: AdaptiveSize): Tensor {
  return adaptiveAvgPool(3, x, size);
}

/**
 * The maximum of as many windows as the size along [N, C, L] or [C, L]; null keeps the length.
 *
 * @example
 * ```ts
 * import { device, nn, tensor } from "holdfast";
 * const cpu = await device("cpu");
 * console.log(nn.functional.adaptiveMaxPool1d(tensor([[1, 5, 3]]), 2).tolist()); // → [ [ 5, 5 ] ]
 * cpu.close();
 * ```
 */
export function adaptiveMaxPool1d<WithIndices extends boolean = false>(
  x: Tensor,
  size: AdaptiveSize,
  options: AdaptiveMaxPoolOptions<WithIndices> = {},
): MaxPoolResult<WithIndices> {
  return adaptiveMaxPool(1, x, size, options);
}

/**
 * The maximum of as many windows as the size over [N, C, H, W] or [C, H, W]; null keeps an axis.
 *
 * @example
 * ```ts
 * import { device, nn, tensor } from "holdfast";
 * const cpu = await device("cpu");
 * console.log(nn.functional.adaptiveMaxPool2d(tensor([[[1, 2], [3, 6]]]), 1).tolist()); // → [ [ [ 6 ] ] ]
 * cpu.close();
 * ```
 */
export function adaptiveMaxPool2d<WithIndices extends boolean = false>(
  x: Tensor,
  size: AdaptiveSize,
  options: AdaptiveMaxPoolOptions<WithIndices> = {},
): MaxPoolResult<WithIndices> {
  return adaptiveMaxPool(2, x, size, options);
}

/**
 * The maximum of as many windows as the size over [N, C, D, H, W] or [C, D, H, W]; null keeps an axis.
 *
 * @example
 * ```ts
 * import { device, nn, ones } from "holdfast";
 * const cpu = await device("cpu");
 * console.log(nn.functional.adaptiveMaxPool3d(ones([1, 4, 5, 6]), [2, null, 1]).shape); // → [ 1, 2, 5, 1 ]
 * cpu.close();
 * ```
 */
export function adaptiveMaxPool3d<WithIndices extends boolean = false>(
  x: Tensor,
  size: AdaptiveSize,
  options: AdaptiveMaxPoolOptions<WithIndices> = {},
): MaxPoolResult<WithIndices> {
  return adaptiveMaxPool(3, x, size, options);
}

const averagePools = [avgPool1d, avgPool2d, avgPool3d];
const maxPools = [maxPool1d, maxPool2d, maxPool3d];

function adaptiveAvgPool(rank: number, x: Tensor, size: AdaptiveSize): Tensor {
  const targets = checkSizes(`adaptiveAvgPool${rank}d`, x, size, rank);
  const first = x.ndim - rank;
  const [prepared, kernel] = targets.reduce<readonly [Tensor, readonly number[]]>(
    ([result, kernels], target, axis) => {
      const length = x.shape[first + axis] ?? 1;
      if (length % target === 0) return [result, [...kernels, length / target]];
      return [averageWindows(result, first + axis, length, target), [...kernels, 1]];
    },
    [x, []],
  );
  return kernel.every((width) => width === 1)
    ? prepared
    : (averagePools[rank - 1] ?? avgPool1d)(prepared, kernel);
}

function adaptiveMaxPool<WithIndices extends boolean>(
  rank: number,
  x: Tensor,
  size: AdaptiveSize,
  options: AdaptiveMaxPoolOptions<WithIndices>,
): MaxPoolResult<WithIndices> {
  const name = `adaptiveMaxPool${rank}d`;
  const { returnIndices = false } = checkOptions(name, options, { returnIndices: true });
  const targets = checkSizes(name, x, size, rank);
  const first = x.ndim - rank;
  const lengths = x.shape.slice(first);
  // Windows of unequal lengths become windows of equal ones, which repeat their last element.
  const sources = targets.map((target, axis) => {
    const windows = windowsOf(lengths[axis] ?? 1, target);
    const width = Math.max(...windows.map(({ start, end }) => end - start));
    return windows.flatMap(({ start, end }) =>
      Array.from({ length: width }, (_, at) => Math.min(start + at, end - 1)),
    );
  });
  const kernel = sources.map((places, axis) => places.length / (targets[axis] ?? 1));
  const isWhole = lengths.map((length, axis) => sources[axis]?.length === length);
  const indexOf = (places: readonly number[]): Tensor =>
    fromTyped(Int32Array.from(places), [places.length], { device: x.device });
  const prepared = sources.reduce(
    (result, places, axis) => (isWhole[axis] ? result : result.indexSelect(first + axis, indexOf(places))),
    x,
  );
  const pool = maxPools[rank - 1] ?? maxPool1d;
  if (!returnIndices) return pool(prepared, kernel) as MaxPoolResult<WithIndices>;
  const { values, indices } = pool(prepared, kernel, { returnIndices: true });
  if (isWhole.every(Boolean)) return { values, indices } as MaxPoolResult<WithIndices>;
  const original = sources.reduce<readonly number[]>(
    (all, places, axis) => all.flatMap((before) => places.map((at) => before * (lengths[axis] ?? 1) + at)),
    [0],
  );
  return { values, indices: indexOf(original).take(indices) } as MaxPoolResult<WithIndices>;
}

/** The size of the result along each axis. */
function checkSizes(name: string, x: Tensor, size: AdaptiveSize, rank: number): readonly number[] {
  const lengths = x.shape.slice(-rank);
  const given = typeof size === "number" ? new Array<number>(rank).fill(size) : size;
  const targets = lengths.map((length, axis) => given[axis] ?? length);
  const isValid =
    (x.ndim === rank + 1 || x.ndim === rank + 2) &&
    given.length === rank &&
    targets.every((target) => Number.isSafeInteger(target) && target >= 1) &&
    lengths.every((length) => length >= 1);
  if (isValid) return targets;
  throw new HoldfastError(
    "BAD_SHAPE",
    `${name}: the size ${formatShape(targets)} for an input ${formatShape(x.shape)}. Pass sizes of 1 or more for ${rank} axes, and an input ` +
      "with channels, with or without a batch.",
  );
}

/** Window w of an adaptive pool begins at ⌊w · length / target⌋ and ends before ⌈(w + 1) · length / target⌉. */
function windowsOf(
  length: number,
  target: number,
): readonly { readonly start: number; readonly end: number }[] {
  return Array.from({ length: target }, (_, at) => ({
    start: Math.floor((at * length) / target),
    end: Math.ceil(((at + 1) * length) / target),
  }));
}

/** The means of windows along an axis: a product with a matrix. */
function averageWindows(x: Tensor, axis: number, length: number, target: number): Tensor {
  const matrix = new Float64Array(length * target);
  for (const [column, { start, end }] of windowsOf(length, target).entries())
    for (let row = start; row < end; row++) matrix[row * target + column] = 1 / (end - start);
  const values = x.dtype === "f64" ? matrix : Float32Array.from(matrix);
  const weights = fromTyped(values, [length, target], { device: x.device }).to(x.dtype);
  return x.movedim(axis, -1).matmul(weights).movedim(-1, axis);
}
