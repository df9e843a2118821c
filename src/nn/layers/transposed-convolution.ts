/** ConvTranspose1d, ConvTranspose2d and ConvTranspose3d: learned kernels that enlarge images. */

import { checkOptions, type OptionNames } from "../../errors/index.js";
import type { PerAxis } from "../../ops/index.js";
import type { Tensor, TransposedConvolutionOptions } from "../../tensor/index.js";
import { convTranspose1d, convTranspose2d, convTranspose3d } from "../functional.js";
import { fansOf, kaimingUniform, uniform } from "../init.js";
import { Module } from "../module.js";
import { Parameter } from "../parameter.js";
import { requireDivides, requireSizes } from "./checks.js";
import { perAxis, textOf } from "./convolution.js";

/** Options of transposed convolution layers. */
export type TransposedConvolutionLayerOptions = TransposedConvolutionOptions & { readonly bias?: boolean };

const transposedConvolutionLayerOptionNames: OptionNames<TransposedConvolutionLayerOptions> = {
  stride: true,
  padding: true,
  dilation: true,
  outputPadding: true,
  groups: true,
  bias: true,
};

/** The common base: a weight [in, out / groups, …kernel] and a bias [out]. */
abstract class TransposedConvolution extends Module {
  readonly inChannels: number;
  readonly outChannels: number;
  readonly kernelSize: readonly number[];
  /** Stride, padding, output padding, dilation and groups. */
  readonly options: TransposedConvolutionOptions;
  readonly weight: Parameter;
  readonly bias: Parameter | null;

  constructor(
    inChannels: number,
    outChannels: number,
    kernelSize: readonly number[],
    { bias = true, ...options }: TransposedConvolutionLayerOptions,
  ) {
    super();
    const { groups = 1 } = options;
    const layer = this.constructor.name;
    const sizes = Object.fromEntries(kernelSize.map((size, axis) => [`axis ${axis} of kernelSize`, size]));
    requireSizes(layer, { inChannels, outChannels, groups, ...sizes });
    requireDivides(layer, inChannels, "inChannels", groups, "groups");
    requireDivides(layer, outChannels, "outChannels", groups, "groups");
    this.inChannels = inChannels;
    this.outChannels = outChannels;
    this.kernelSize = kernelSize;
    this.options = options;
    const shape = [inChannels, outChannels / groups, ...kernelSize];
    const bound = 1 / Math.sqrt(fansOf(shape).fanIn);
    this.weight = new Parameter(shape, kaimingUniform());
    this.bias = bias ? new Parameter([outChannels], uniform(-bound, bound)) : null;
  }

  protected override describe(): string {
    const options = Object.entries(this.options).map(([name, value]) => `${name}=${textOf(value)}`);
    const sizes = [this.inChannels, this.outChannels, `kernelSize=${textOf(this.kernelSize)}`];
    return [...sizes, ...options, `bias=${this.bias !== null}`].join(", ");
  }
}

/**
 * A transposed convolution over [N, C, L] or [C, L]: the gradient of a convolution by its input, as a layer.
 *
 * @example
 * ```ts
 * import { device, nn, ones } from "holdfast";
 * const cpu = await device("cpu");
 * const layer = new nn.ConvTranspose1d(2, 4, 2, { stride: 2 }).to(cpu);
 * console.log(layer.forward(ones([1, 2, 5])).shape); // → [ 1, 4, 10 ]
 * cpu.close();
 * ```
 */
export class ConvTranspose1d extends TransposedConvolution {
  constructor(
    inChannels: number,
    outChannels: number,
    kernelSize: PerAxis,
    options: TransposedConvolutionLayerOptions = {},
  ) {
    checkOptions("nn.ConvTranspose1d", options, transposedConvolutionLayerOptionNames);
    super(inChannels, outChannels, perAxis(kernelSize, 1), options);
  }

  /** [N, C, L] or [C, L] to as many axes, with `outChannels` channels. */
  forward(x: Tensor): Tensor {
    return convTranspose1d(x, this.weight, this.bias, this.options);
  }
}

/**
 * A transposed convolution over [N, C, H, W] or [C, H, W]: the gradient of a convolution by its input, as a layer.
 *
 * @example
 * ```ts
 * import { device, nn, ones } from "holdfast";
 * const cpu = await device("cpu");
 * const layer = new nn.ConvTranspose2d(2, 4, 2, { stride: 2 }).to(cpu);
 * console.log(layer.forward(ones([1, 2, 5, 6])).shape); // → [ 1, 4, 10, 12 ]
 * cpu.close();
 * ```
 */
export class ConvTranspose2d extends TransposedConvolution {
  constructor(
    inChannels: number,
    outChannels: number,
    kernelSize: PerAxis,
    options: TransposedConvolutionLayerOptions = {},
  ) {
    checkOptions("nn.ConvTranspose2d", options, transposedConvolutionLayerOptionNames);
    super(inChannels, outChannels, perAxis(kernelSize, 2), options);
  }

  /** [N, C, H, W] or [C, H, W] to as many axes, with `outChannels` channels. */
  forward(x: Tensor): Tensor {
    return convTranspose2d(x, this.weight, this.bias, this.options);
  }
}

/**
 * A transposed convolution over [N, C, D, H, W] or [C, D, H, W]: the gradient of a convolution by its input, as a layer.
 *
 * @example
 * ```ts
 * import { device, nn, ones } from "holdfast";
 * const cpu = await device("cpu");
 * const layer = new nn.ConvTranspose3d(2, 4, 2, { stride: 2 }).to(cpu);
 * console.log(layer.forward(ones([1, 2, 2, 3, 4])).shape); // → [ 1, 4, 4, 6, 8 ]
 * cpu.close();
 * ```
 */
export class ConvTranspose3d extends TransposedConvolution {
  constructor(
    inChannels: number,
    outChannels: number,
    kernelSize: PerAxis,
    options: TransposedConvolutionLayerOptions = {},
  ) {
    checkOptions("nn.ConvTranspose3d", options, transposedConvolutionLayerOptionNames);
    super(inChannels, outChannels, perAxis(kernelSize, 3), options);
  }

  /** [N, C, D, H, W] or [C, D, H, W] to as many axes, with `outChannels` channels. */
  forward(x: Tensor): Tensor {
    return convTranspose3d(x, this.weight, this.bias, this.options);
  }
}
