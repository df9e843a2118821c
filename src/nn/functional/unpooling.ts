/** The inverse of max pooling: its maxima at their places, and zeros elsewhere. */

import { checkOptions, HoldfastError, type OptionNames } from "../../errors/index.js";
import { formatShape, type PerAxis, type PoolAttributes } from "../../ops/index.js";
import { autograd, type Tensor, zeros } from "../../tensor/index.js";

/** Options of `maxUnpool1d`, `maxUnpool2d` and `maxUnpool3d`. */
export interface MaxUnpoolOptions extends Pick<PoolAttributes, "stride" | "padding"> {
  /** The size of the result, with or without the batch and the channels: pools of several sizes have results of one size. */
  readonly outputSize?: readonly number[];
}

const maxUnpoolOptionNames: OptionNames<MaxUnpoolOptions> = {
  stride: true,
  padding: true,
  outputSize: true,
};

/**
 * The maxima of `maxPool1d` at their indices, and zeros elsewhere; [N, C, L] or [C, L].
 *
 * @example
 * ```ts
 * import { device, nn, tensor } from "holdfast";
 * const cpu = await device("cpu");
 * const { values, indices } = nn.functional.maxPool1d(tensor([[1, 3, 5, 2]]), 2, { returnIndices: true });
 * console.log(nn.functional.maxUnpool1d(values, indices, 2).tolist()); // → [ [ 0, 3, 5, 0 ] ]
 * cpu.close();
 * ```
 */
export function maxUnpool1d(
  x: Tensor,
  indices: Tensor,
  kernel: PerAxis,
  options: MaxUnpoolOptions = {},
): Tensor {
  return maxUnpool(1, x, indices, kernel, options);
}

/**
 * The maxima of `maxPool2d` at their indices, and zeros elsewhere; [N, C, H, W] or [C, H, W].
 *
 * @example
 * ```ts
 * import { device, nn, tensor } from "holdfast";
 * const cpu = await device("cpu");
 * const { values, indices } = nn.functional.maxPool2d(tensor([[[1, 3], [5, 2]]]), 2, { returnIndices: true });
 * console.log(nn.functional.maxUnpool2d(values, indices, 2).tolist()); // → [ [ [ 0, 0 ], [ 5, 0 ] ] ]
 * cpu.close();
 * ```
 */
export function maxUnpool2d(
  x: Tensor,
  indices: Tensor,
  kernel: PerAxis,
  options: MaxUnpoolOptions = {},
): Tensor {
  return maxUnpool(2, x, indices, kernel, options);
}

/**
 * The maxima of `maxPool3d` at their indices, and zeros elsewhere; [N, C, D, H, W] or [C, D, H, W].
 *
 * @example
 * ```ts
 * import { arange, device, nn } from "holdfast";
 * const cpu = await device("cpu");
 * const x = arange(8).to("f32").reshape([1, 2, 2, 2]);
 * const { values, indices } = nn.functional.maxPool3d(x, 2, { returnIndices: true });
 * console.log(String(nn.functional.maxUnpool3d(values, indices, 2).flatten().tolist())); // → 0,0,0,0,0,0,0,7
 * cpu.close();
 * ```
 */
export function maxUnpool3d(
  x: Tensor,
  indices: Tensor,
  kernel: PerAxis,
  options: MaxUnpoolOptions = {},
): Tensor {
  return maxUnpool(3, x, indices, kernel, options);
}

function maxUnpool(
  rank: number,
  x: Tensor,
  indices: Tensor,
  kernel: PerAxis,
  options: MaxUnpoolOptions,
): Tensor {
  const name = `maxUnpool${rank}d`;
  checkOptions(name, options, maxUnpoolOptionNames);
  const isImage = x.ndim === rank + 1 || x.ndim === rank + 2;
  if (!isImage || formatShape(x.shape) !== formatShape(indices.shape)) {
    throw new HoldfastError(
      "BAD_SHAPE",
      `${name}: an input ${formatShape(x.shape)} with indices ${formatShape(indices.shape)}. Pass the values and the indices of a pool: ` +
        `both have ${rank} axes after the channels, and one shape.`,
    );
  }
  const leading = x.shape.slice(0, -rank);
  const sizes = outputSizes(name, x.shape.slice(-rank), kernel, options);
  const places = indices.reshape([...leading, -1]);
  const size = sizes.reduce((product, length) => product * length, 1);
  return Unpool.apply(x.reshape([...leading, -1]), places, size).reshape([...leading, ...sizes]);
}

/** Values at their places along the last axis. As in PyTorch, each has the gradient of its place, also if several have the same. */
class Unpool extends autograd.Function {
  static forward(context: autograd.FunctionContext, x: Tensor, places: Tensor, size: number): Tensor {
    context.saveForBackward(places);
    const { device, dtype } = x;
    return zeros([...x.shape.slice(0, -1), size], { device, dtype }).scatter(-1, places, x);
  }
  static backward({ savedTensors: [places] }: autograd.FunctionContext, gradient: Tensor): (Tensor | null)[] {
    return places ? [gradient.gather(-1, places), null, null] : [];
  }
}

function outputSizes(
  name: string,
  lengths: readonly number[],
  kernel: PerAxis,
  { stride = kernel, padding = 0, outputSize }: MaxUnpoolOptions,
): readonly number[] {
  const at = (value: PerAxis, axis: number): number =>
    typeof value === "number" ? value : (value[axis] ?? 1);
  const smallest = lengths.map(
    (length, axis) => (length - 1) * at(stride, axis) - 2 * at(padding, axis) + at(kernel, axis),
  );
  if (!outputSize) return smallest;
  const rank = lengths.length;
  const sizes = outputSize.slice(-rank);
  const isNear = (size: number, axis: number): boolean =>
    Number.isSafeInteger(size) && size > 0 && Math.abs(size - (smallest[axis] ?? 0)) < at(stride, axis);
  if ((outputSize.length === rank || outputSize.length === rank + 2) && sizes.every(isNear)) return sizes;
  throw new HoldfastError(
    "BAD_SHAPE",
    `${name}: the outputSize ${formatShape(outputSize)} for an input of ${formatShape(lengths)}. Pass sizes that differ from ` +
      `${formatShape(smallest)} by less than the stride.`,
  );
}
