/**
 * Convolution functions, with PyTorch's layouts: [N, C, L], [N, C, H, W] and [N, C, D, H, W], or without the batch.
 */

import { checkOptions, HoldfastError, type OptionNames } from "../errors/index.js";
import {
  type ConvolutionAttributes,
  conv1d as conv1dOp,
  conv2d as conv2dOp,
  conv3d as conv3dOp,
  convTranspose1d as convTranspose1dOp,
  convTranspose2d as convTranspose2dOp,
  convTranspose3d as convTranspose3dOp,
  formatShape,
  type PerAxis,
  type TransposedConvolutionAttributes,
} from "../ops/index.js";
import type { Tensor } from "./tensor.js";

/** `stride`, `padding` and `dilation`: one number for all axes or one for each; `groups` of channels. */
export type ConvolutionOptions = Omit<ConvolutionAttributes, "padding"> & {
  /** Zeros at both ends of an axis. "same" adds as many as keep the sizes, with a stride of 1, and "valid" none. Default: 0. */
  readonly padding?: PerAxis | "same" | "valid";
};

const convolutionOptionNames: OptionNames<ConvolutionOptions> = {
  stride: true,
  padding: true,
  dilation: true,
  groups: true,
};
/** As for a convolution, and `outputPadding`, which is added to the size of the result. */
export type TransposedConvolutionOptions = TransposedConvolutionAttributes;

const transposedConvolutionOptionNames: OptionNames<TransposedConvolutionOptions> = {
  stride: true,
  padding: true,
  dilation: true,
  outputPadding: true,
  groups: true,
};
/** The zeros before and after each axis of a kernel. */
export function paddingOf(
  name: string,
  kernel: readonly number[],
  { padding = 0, stride = 1, dilation = 1 }: ConvolutionOptions,
): readonly (readonly [before: number, after: number])[] {
  const each = (value: PerAxis, axis: number): number =>
    typeof value === "number" ? value : (value[axis] ?? 1);
  if (padding === "valid") return kernel.map(() => [0, 0]);
  if (padding !== "same") {
    if (typeof padding !== "string")
      return kernel.map((_, axis) => [each(padding, axis), each(padding, axis)]);
    throw new HoldfastError(
      "BAD_ARGUMENT",
      `${name}: padding is "${String(padding)}". Pass "same", "valid", or numbers.`,
    );
  }
  if (kernel.some((_, axis) => each(stride, axis) !== 1)) {
    throw new HoldfastError(
      "BAD_ARGUMENT",
      `${name}: padding "same" needs a stride of 1, and the stride is ${formatShape([stride].flat())}. Pass numbers as the padding.`,
    );
  }
  return kernel.map((size, axis) => {
    const total = each(dilation, axis) * (size - 1);
    return [Math.floor(total / 2), Math.ceil(total / 2)];
  });
}

/** Runs a convolution. The op has the same padding at both ends: an input that needs more at one end is padded first. */
function convolve(
  op: typeof conv1dOp,
  operands: readonly [x: Tensor, weight: Tensor, bias: Tensor | null],
  options: ConvolutionOptions,
): Tensor {
  checkOptions(op.name, options, convolutionOptionNames);
  const [x, weight, bias] = operands;
  const { padding, ...others } = options;
  if (typeof padding !== "string") {
    const attributes = { ...others, ...(padding !== undefined && { padding }) };
    return x.device.apply(op, bias ? [x, weight, bias] : [x, weight], attributes);
  }
  const ends = paddingOf(op.name, weight.shape.slice(2), options);
  const isUneven = ends.some(([before, after]) => before !== after);
  const input = isUneven ? x.pad(ends.toReversed().flatMap(([before, after]) => [0, after - before])) : x;
  const attributes = { ...others, padding: ends.map(([before]) => before) };
  return x.device.apply(op, bias ? [input, weight, bias] : [input, weight], attributes);
}

/**
 * Convolves an input [N, C, L] or [C, L] with a weight [out, C / groups, k]; the bias [out] may be null.
 *
 * @example
 * ```ts
 * import { conv1d, device, tensor } from "holdfast";
 * const cpu = await device("cpu");
 * const difference = tensor([[[-1, 1]]]);
 * console.log(conv1d(tensor([[1, 4, 9, 16]]), difference).tolist()); // → [ [ 3, 5, 7 ] ]
 * cpu.close();
 * ```
 */
export function conv1d(
  x: Tensor,
  weight: Tensor,
  bias: Tensor | null = null,
  options: ConvolutionOptions = {},
): Tensor {
  return convolve(conv1dOp, [x, weight, bias], options);
}

/**
 * Convolves an input [N, C, H, W] or [C, H, W] with a weight [out, C / groups, kH, kW]; the bias [out] may be null.
 *
 * @example
 * ```ts
 * import { conv2d, device, ones } from "holdfast";
 * const cpu = await device("cpu");
 * const y = conv2d(ones([1, 2, 4, 4]), ones([3, 2, 3, 3]), null, { padding: 1 });
 * console.log(y.shape, y.slice(0, 0, 0).tolist()); // → [ 1, 3, 4, 4 ] [ 8, 12, 12, 8 ]
 * cpu.close();
 * ```
 */
export function conv2d(
  x: Tensor,
  weight: Tensor,
  bias: Tensor | null = null,
  options: ConvolutionOptions = {},
): Tensor {
  return convolve(conv2dOp, [x, weight, bias], options);
}

/**
 * Convolves an input [N, C, D, H, W] or [C, D, H, W] with a weight [out, C / groups, kD, kH, kW]; the bias [out] may be null.
 *
 * @example
 * ```ts
 * import { conv3d, device, ones } from "holdfast";
 * const cpu = await device("cpu");
 * console.log(conv3d(ones([1, 3, 3, 3]), ones([1, 1, 2, 2, 2])).amax().item()); // → 8
 * cpu.close();
 * ```
 */
export function conv3d(
  x: Tensor,
  weight: Tensor,
  bias: Tensor | null = null,
  options: ConvolutionOptions = {},
): Tensor {
  return convolve(conv3dOp, [x, weight, bias], options);
}

/**
 * The transposed convolution of an input [N, C, D, H, W] or [C, D, H, W] with a weight [C, out / groups, kD, kH, kW]; the bias [out] may be
 * null.
 *
 * @example
 * ```ts
 * import { convTranspose3d, device, ones } from "holdfast";
 * const cpu = await device("cpu");
 * console.log(convTranspose3d(ones([1, 2, 2, 2]), ones([1, 3, 2, 2, 2]), null, { stride: 2 }).shape); // → [ 3, 4, 4, 4 ]
 * cpu.close();
 * ```
 */
export function convTranspose3d(
  x: Tensor,
  weight: Tensor,
  bias: Tensor | null = null,
  options: TransposedConvolutionOptions = {},
): Tensor {
  checkOptions("convTranspose3d", options, transposedConvolutionOptionNames);
  return x.device.apply(convTranspose3dOp, bias ? [x, weight, bias] : [x, weight], options);
}

/**
 * The transposed convolution of an input [N, C, L] or [C, L] with a weight [C, out / groups, k]; the bias [out] may be null.
 *
 * @example
 * ```ts
 * import { convTranspose1d, device, tensor } from "holdfast";
 * const cpu = await device("cpu");
 * const y = convTranspose1d(tensor([[1, 2]]), tensor([[[1, 10, 100]]]), null, { stride: 2 });
 * console.log(y.tolist()); // → [ [ 1, 10, 102, 20, 200 ] ]
 * cpu.close();
 * ```
 */
export function convTranspose1d(
  x: Tensor,
  weight: Tensor,
  bias: Tensor | null = null,
  options: TransposedConvolutionOptions = {},
): Tensor {
  checkOptions("convTranspose1d", options, transposedConvolutionOptionNames);
  return x.device.apply(convTranspose1dOp, bias ? [x, weight, bias] : [x, weight], options);
}

/**
 * The transposed convolution of an input [N, C, H, W] or [C, H, W] with a weight [C, out / groups, kH, kW]; the bias [out] may be null.
 *
 * @example
 * ```ts
 * import { convTranspose2d, device, ones } from "holdfast";
 * const cpu = await device("cpu");
 * const y = convTranspose2d(ones([1, 2, 2]), ones([1, 1, 3, 3]), null, { stride: 2, padding: 1, outputPadding: 1 });
 * console.log(y.shape, y.select(1, 0).tolist()); // → [ 1, 4, 4 ] [ [ 1, 2, 1, 1 ] ]
 * cpu.close();
 * ```
 */
export function convTranspose2d(
  x: Tensor,
  weight: Tensor,
  bias: Tensor | null = null,
  options: TransposedConvolutionOptions = {},
): Tensor {
  checkOptions("convTranspose2d", options, transposedConvolutionOptionNames);
  return x.device.apply(convTranspose2dOp, bias ? [x, weight, bias] : [x, weight], options);
}
