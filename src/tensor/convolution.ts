/**
 * Convolution functions, with PyTorch's layouts: [N, C, L], [N, C, H, W] and [N, C, D, H, W], or without the batch.
 */

import { checkOptions, type OptionNames } from "../errors/index.js";
import {
  type ConvolutionAttributes,
  conv1d as conv1dOp,
  conv2d as conv2dOp,
  conv3d as conv3dOp,
  convTranspose1d as convTranspose1dOp,
  convTranspose2d as convTranspose2dOp,
  convTranspose3d as convTranspose3dOp,
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
