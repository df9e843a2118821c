/** Conv1d, Conv2d and Conv3d: learned convolution kernels. */

import { checkOptions, HoldfastError, type OptionNames } from "../../errors/index.js";
import type { PerAxis } from "../../ops/index.js";
import { paddingOf, type Tensor, type ConvolutionOptions as WindowOptions } from "../../tensor/index.js";
import { conv1d, conv2d, conv3d, pad } from "../functional.js";
import { fansOf, kaimingUniform, uniform } from "../init.js";
import { Module } from "../module.js";
import { Parameter } from "../parameter.js";
import { requireDivides, requireSizes } from "./checks.js";

/** Options of convolution layers. */
export type ConvolutionLayerOptions = WindowOptions & {
  readonly bias?: boolean;
  /** What the padding consists of: zeros, a mirror image, the edge, or the other end. Default: zeros. */
  readonly paddingMode?: "zeros" | "reflect" | "replicate" | "circular";
};

const convolutionLayerOptionNames: OptionNames<ConvolutionLayerOptions> = {
  stride: true,
  padding: true,
  dilation: true,
  groups: true,
  bias: true,
  paddingMode: true,
};

/** The common base: a weight [out, in / groups, …kernel] and a bias [out]. */
abstract class Convolution extends Module {
  readonly inChannels: number;
  readonly outChannels: number;
  readonly kernelSize: readonly number[];
  /** Stride, padding, dilation and groups. */
  readonly options: WindowOptions;
  readonly paddingMode: "zeros" | "reflect" | "replicate" | "circular";
  readonly weight: Parameter;
  readonly bias: Parameter | null;
  /** The padding that is not of zeros, from the last axis on. */
  readonly #pads: readonly number[] | undefined;

  constructor(
    inChannels: number,
    outChannels: number,
    kernelSize: readonly number[],
    { bias = true, paddingMode = "zeros", ...options }: ConvolutionLayerOptions,
  ) {
    super();
    const { groups = 1 } = options;
    const layer = this.constructor.name;
    const kernelSizes = Object.fromEntries(
      kernelSize.map((size, axis) => [`axis ${axis} of kernelSize`, size]),
    );
    requireSizes(layer, { inChannels, outChannels, groups, ...kernelSizes });
    requireDivides(layer, inChannels, "inChannels", groups, "groups");
    requireDivides(layer, outChannels, "outChannels", groups, "groups");
    this.inChannels = inChannels;
    this.outChannels = outChannels;
    this.kernelSize = kernelSize;
    this.options = options;
    this.paddingMode = paddingMode;
    if (!["zeros", "reflect", "replicate", "circular"].includes(paddingMode)) {
      throw new HoldfastError(
        "BAD_ARGUMENT",
        `${layer}: paddingMode is "${paddingMode}". Pass "zeros", "reflect", "replicate" or "circular".`,
      );
    }
    const ends = paddingOf(layer, kernelSize, options);
    this.#pads = paddingMode === "zeros" ? undefined : ends.toReversed().flat();
    const shape = [outChannels, inChannels / groups, ...kernelSize];
    const bound = 1 / Math.sqrt(fansOf(shape).fanIn);
    this.weight = new Parameter(shape, kaimingUniform());
    this.bias = bias ? new Parameter([outChannels], uniform(-bound, bound)) : null;
  }

  /** The input with its padding, and the options that are left. */
  protected padded(x: Tensor): readonly [x: Tensor, options: WindowOptions] {
    if (!this.#pads || this.paddingMode === "zeros") return [x, this.options];
    return [pad(x, this.#pads, { mode: this.paddingMode }), { ...this.options, padding: 0 }];
  }

  protected override describe(): string {
    const mode = this.paddingMode === "zeros" ? {} : { paddingMode: this.paddingMode };
    const options = Object.entries({ ...this.options, ...mode }).map(
      ([name, value]) => `${name}=${textOf(value)}`,
    );
    return [
      this.inChannels,
      this.outChannels,
      `kernelSize=${textOf(this.kernelSize)}`,
      ...options,
      `bias=${this.bias !== null}`,
    ].join(", ");
  }
}

/**
 * A convolution over [batch, channels, length], or without the batch axis.
 *
 * @example
 * ```ts
 * import { device, nn, ones } from "holdfast";
 * const cpu = await device("cpu");
 * const layer = new nn.Conv1d(2, 4, 3, { padding: 1 }).to(cpu);
 * console.log(layer.forward(ones([1, 2, 10])).shape); // → [ 1, 4, 10 ]
 * cpu.close();
 * ```
 */
export class Conv1d extends Convolution {
  constructor(
    inChannels: number,
    outChannels: number,
    kernelSize: PerAxis,
    options: ConvolutionLayerOptions = {},
  ) {
    checkOptions("nn.Conv1d", options, convolutionLayerOptionNames);
    super(inChannels, outChannels, perAxis(kernelSize, 1), options);
  }

  /** [N, C, L] or [C, L] to as many axes, with `outChannels` channels. */
  forward(x: Tensor): Tensor {
    const [input, options] = this.padded(x);
    return conv1d(input, this.weight, this.bias, options);
  }
}

/**
 * A convolution over [batch, channels, height, width], or without the batch axis.
 *
 * @example
 * ```ts
 * import { device, nn, ones } from "holdfast";
 * const cpu = await device("cpu");
 * const layer = new nn.Conv2d(3, 8, [3, 5], { stride: 2 }).to(cpu);
 * console.log(layer.forward(ones([1, 3, 9, 9])).shape); // → [ 1, 8, 4, 3 ]
 * const mirrored = new nn.Conv2d(3, 8, 3, { padding: "same", paddingMode: "reflect" }).to(cpu);
 * console.log(mirrored.forward(ones([1, 3, 9, 9])).shape); // → [ 1, 8, 9, 9 ]
 * cpu.close();
 * ```
 */
export class Conv2d extends Convolution {
  constructor(
    inChannels: number,
    outChannels: number,
    kernelSize: PerAxis,
    options: ConvolutionLayerOptions = {},
  ) {
    checkOptions("nn.Conv2d", options, convolutionLayerOptionNames);
    super(inChannels, outChannels, perAxis(kernelSize, 2), options);
  }

  /** [N, C, H, W] or [C, H, W] to as many axes, with `outChannels` channels. */
  forward(x: Tensor): Tensor {
    const [input, options] = this.padded(x);
    return conv2d(input, this.weight, this.bias, options);
  }
}

/**
 * A convolution over [batch, channels, depth, height, width], or without the batch axis.
 *
 * @example
 * ```ts
 * import { device, nn, ones } from "holdfast";
 * const cpu = await device("cpu");
 * const layer = new nn.Conv3d(1, 2, 3).to(cpu);
 * console.log(layer.forward(ones([1, 1, 4, 5, 6])).shape); // → [ 1, 2, 2, 3, 4 ]
 * cpu.close();
 * ```
 */
export class Conv3d extends Convolution {
  constructor(
    inChannels: number,
    outChannels: number,
    kernelSize: PerAxis,
    options: ConvolutionLayerOptions = {},
  ) {
    checkOptions("nn.Conv3d", options, convolutionLayerOptionNames);
    super(inChannels, outChannels, perAxis(kernelSize, 3), options);
  }

  /** [N, C, D, H, W] or [C, D, H, W] to as many axes, with `outChannels` channels. */
  forward(x: Tensor): Tensor {
    const [input, options] = this.padded(x);
    return conv3d(input, this.weight, this.bias, options);
  }
}

export function perAxis(size: PerAxis, axes: number): readonly number[] {
  if (typeof size === "number") return new Array<number>(axes).fill(size);
  if (Array.isArray(size)) return size;
  throw new HoldfastError(
    "BAD_ARGUMENT",
    "The size of a kernel has to be a number or a list of numbers: new nn.Conv2d(3, 8, 5) or new nn.Conv2d(3, 8, [3, 5]).",
  );
}

export function textOf(value: PerAxis | string): string {
  return typeof value === "object" ? `[${value.join(", ")}]` : String(value);
}
