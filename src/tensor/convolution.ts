/**
 * Convolution and pooling functions, with PyTorch's layouts: [N, C, L], [N, C, H, W] and [N, C, D, H, W], or without the batch.
 */

import { checkOptions, type OptionNames } from "../errors/index.js";
import {
  avgPool1d as avgPool1dOp,
  avgPool2d as avgPool2dOp,
  avgPool3d as avgPool3dOp,
  type ConvolutionAttributes,
  conv1d as conv1dOp,
  conv2d as conv2dOp,
  conv3d as conv3dOp,
  convTranspose1d as convTranspose1dOp,
  convTranspose2d as convTranspose2dOp,
  convTranspose3d as convTranspose3dOp,
  maxPool1d as maxPool1dOp,
  maxPool2d as maxPool2dOp,
  maxPool3d as maxPool3dOp,
  type PerAxis,
  type PoolAttributes,
  type TransposedConvolutionAttributes,
} from "../ops/index.js";
import type { Tensor } from "./tensor.js";

/** `stride`, `padding` and `dilation`: one number for all axes or one for each; `groups` of channels. */
export type ConvolutionOptions = ConvolutionAttributes;

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
/** `stride` (default: the kernel's size), `padding` and, for max pooling, `dilation`. */
export type PoolOptions = Omit<PoolAttributes, "kernel">;

export const poolOptionNames: OptionNames<PoolOptions> = { stride: true, padding: true, dilation: true };

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
  checkOptions("conv1d", options, convolutionOptionNames);
  return x.device.apply(conv1dOp, bias ? [x, weight, bias] : [x, weight], options);
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
  checkOptions("conv2d", options, convolutionOptionNames);
  return x.device.apply(conv2dOp, bias ? [x, weight, bias] : [x, weight], options);
}

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
export function maxPool1d(x: Tensor, kernel: PerAxis, options: PoolOptions = {}): Tensor {
  checkOptions("maxPool1d", options, poolOptionNames);
  return x.device.apply(maxPool1dOp, [x], { kernel, ...options });
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
export function maxPool2d(x: Tensor, kernel: PerAxis, options: PoolOptions = {}): Tensor {
  checkOptions("maxPool2d", options, poolOptionNames);
  return x.device.apply(maxPool2dOp, [x], { kernel, ...options });
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
export function avgPool1d(x: Tensor, kernel: PerAxis, options: Omit<PoolOptions, "dilation"> = {}): Tensor {
  checkOptions("avgPool1d", options, { stride: true, padding: true });
  return x.device.apply(avgPool1dOp, [x], { kernel, ...options });
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
export function avgPool2d(x: Tensor, kernel: PerAxis, options: Omit<PoolOptions, "dilation"> = {}): Tensor {
  checkOptions("avgPool2d", options, { stride: true, padding: true });
  return x.device.apply(avgPool2dOp, [x], { kernel, ...options });
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
  checkOptions("conv3d", options, convolutionOptionNames);
  return x.device.apply(conv3dOp, bias ? [x, weight, bias] : [x, weight], options);
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
export function maxPool3d(x: Tensor, kernel: PerAxis, options: PoolOptions = {}): Tensor {
  checkOptions("maxPool3d", options, poolOptionNames);
  return x.device.apply(maxPool3dOp, [x], { kernel, ...options });
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
export function avgPool3d(x: Tensor, kernel: PerAxis, options: Omit<PoolOptions, "dilation"> = {}): Tensor {
  checkOptions("avgPool3d", options, { stride: true, padding: true });
  return x.device.apply(avgPool3dOp, [x], { kernel, ...options });
}
