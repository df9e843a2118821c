/** Changes of resolution as modules: adaptive and power pooling, upsampling, and shuffles. */

import { checkOptions } from "../../errors/index.js";
import type { PerAxis } from "../../ops/index.js";
import type { MaxPoolResult, Tensor } from "../../tensor/index.js";
import { interpolateOptionNames, lpPoolOptionNames } from "../functional/resampling.js";
import {
  type AdaptiveMaxPoolOptions,
  type AdaptiveSize,
  adaptiveAvgPool1d,
  adaptiveAvgPool2d,
  adaptiveAvgPool3d,
  adaptiveMaxPool1d,
  adaptiveMaxPool2d,
  adaptiveMaxPool3d,
  channelShuffle,
  type InterpolateOptions,
  interpolate,
  type LpPoolOptions,
  lpPool1d,
  lpPool2d,
  pixelShuffle,
  pixelUnshuffle,
} from "../functional.js";
import { Module } from "../module.js";
import { requireSizes } from "./checks.js";

abstract class AdaptivePool extends Module {
  /** The size of the result; null keeps an axis. */
  readonly outputSize: AdaptiveSize;

  constructor(outputSize: AdaptiveSize) {
    super();
    this.outputSize = outputSize;
  }

  protected override describe(): string {
    const { outputSize } = this;
    return `outputSize=${typeof outputSize === "number" ? outputSize : `[${outputSize.join(", ")}]`}`;
  }
}

/**
 * The mean of as many windows of [N, C, L] or [C, L] as the size.
 *
 * @example
 * ```ts
 * import { device, nn, ones } from "holdfast";
 * const cpu = await device("cpu");
 * console.log(new nn.AdaptiveAvgPool1d(3).forward(ones([1, 6])).shape); // → [ 1, 3 ]
 * cpu.close();
 * ```
 */
export class AdaptiveAvgPool1d extends AdaptivePool {
  /** [N, C, L] or [C, L] to the output size. */
  forward(x: Tensor): Tensor {
    return adaptiveAvgPool1d(x, this.outputSize);
  }
}

/**
 * The mean of as many windows of [N, C, H, W] or [C, H, W] as the size.
 *
 * @example
 * ```ts
 * import { device, nn, ones } from "holdfast";
 * const cpu = await device("cpu");
 * console.log(new nn.AdaptiveAvgPool2d(3).forward(ones([1, 6, 5])).shape); // → [ 1, 3, 3 ]
 * cpu.close();
 * ```
 */
export class AdaptiveAvgPool2d extends AdaptivePool {
  /** [N, C, H, W] or [C, H, W] to the output size. */
  forward(x: Tensor): Tensor {
    return adaptiveAvgPool2d(x, this.outputSize);
  }
}

/**
 * The mean of as many windows of [N, C, D, H, W] or [C, D, H, W] as the size.
 *
 * @example
 * ```ts
 * import { device, nn, ones } from "holdfast";
 * const cpu = await device("cpu");
 * console.log(new nn.AdaptiveAvgPool3d(3).forward(ones([1, 6, 5, 4])).shape); // → [ 1, 3, 3, 3 ]
 * cpu.close();
 * ```
 */
export class AdaptiveAvgPool3d extends AdaptivePool {
  /** [N, C, D, H, W] or [C, D, H, W] to the output size. */
  forward(x: Tensor): Tensor {
    return adaptiveAvgPool3d(x, this.outputSize);
  }
}

/**
 * The maximum of as many windows of [N, C, L] or [C, L] as the size.
 *
 * @example
 * ```ts
 * import { device, nn, ones } from "holdfast";
 * const cpu = await device("cpu");
 * console.log(new nn.AdaptiveMaxPool1d(3).forward(ones([1, 6])).shape); // → [ 1, 3 ]
 * cpu.close();
 * ```
 */
export class AdaptiveMaxPool1d<WithIndices extends boolean = false> extends AdaptivePool {
  readonly options: AdaptiveMaxPoolOptions<WithIndices>;

  constructor(outputSize: AdaptiveSize, options: AdaptiveMaxPoolOptions<WithIndices> = {}) {
    checkOptions("nn.AdaptiveMaxPool1d", options, { returnIndices: true });
    super(outputSize);
    this.options = options;
  }

  /** [N, C, L] or [C, L] to the output size, with `returnIndices` as `{ values, indices }`. */
  forward(x: Tensor): MaxPoolResult<WithIndices> {
    return adaptiveMaxPool1d(x, this.outputSize, this.options);
  }
}

/**
 * The maximum of as many windows of [N, C, H, W] or [C, H, W] as the size.
 *
 * @example
 * ```ts
 * import { device, nn, ones } from "holdfast";
 * const cpu = await device("cpu");
 * console.log(new nn.AdaptiveMaxPool2d(3).forward(ones([1, 6, 5])).shape); // → [ 1, 3, 3 ]
 * cpu.close();
 * ```
 */
export class AdaptiveMaxPool2d<WithIndices extends boolean = false> extends AdaptivePool {
  readonly options: AdaptiveMaxPoolOptions<WithIndices>;

  constructor(outputSize: AdaptiveSize, options: AdaptiveMaxPoolOptions<WithIndices> = {}) {
    checkOptions("nn.AdaptiveMaxPool2d", options, { returnIndices: true });
    super(outputSize);
    this.options = options;
  }

  /** [N, C, H, W] or [C, H, W] to the output size, with `returnIndices` as `{ values, indices }`. */
  forward(x: Tensor): MaxPoolResult<WithIndices> {
    return adaptiveMaxPool2d(x, this.outputSize, this.options);
  }
}

/**
 * The maximum of as many windows of [N, C, D, H, W] or [C, D, H, W] as the size.
 *
 * @example
 * ```ts
 * import { device, nn, ones } from "holdfast";
 * const cpu = await device("cpu");
 * console.log(new nn.AdaptiveMaxPool3d(3).forward(ones([1, 6, 5, 4])).shape); // → [ 1, 3, 3, 3 ]
 * cpu.close();
 * ```
 */
export class AdaptiveMaxPool3d<WithIndices extends boolean = false> extends AdaptivePool {
  readonly options: AdaptiveMaxPoolOptions<WithIndices>;

  constructor(outputSize: AdaptiveSize, options: AdaptiveMaxPoolOptions<WithIndices> = {}) {
    checkOptions("nn.AdaptiveMaxPool3d", options, { returnIndices: true });
    super(outputSize);
    this.options = options;
  }

  /** [N, C, D, H, W] or [C, D, H, W] to the output size, with `returnIndices` as `{ values, indices }`. */
  forward(x: Tensor): MaxPoolResult<WithIndices> {
    return adaptiveMaxPool3d(x, this.outputSize, this.options);
  }
}

/**
 * The p-norm of every window of [N, C, L] or [C, L].
 *
 * @example
 * ```ts
 * import { device, nn, tensor } from "holdfast";
 * const cpu = await device("cpu");
 * console.log(new nn.LPPool1d(2, 2).forward(tensor([[3, 4]])).tolist()); // → [ [ 5 ] ]
 * cpu.close();
 * ```
 */
export class LPPool1d extends Module {
  readonly p: number;
  readonly kernelSize: number;
  readonly options: LpPoolOptions;

  constructor(p: number, kernelSize: number, options: LpPoolOptions = {}) {
    checkOptions("nn.LPPool1d", options, lpPoolOptionNames);
    super();
    this.p = p;
    this.kernelSize = kernelSize;
    this.options = options;
  }

  /** [N, C, L] or [C, L] to the norms of its windows. */
  forward(x: Tensor): Tensor {
    return lpPool1d(x, this.p, this.kernelSize, this.options);
  }

  protected override describe(): string {
    return `p=${this.p}, kernelSize=${String(this.kernelSize)}`;
  }
}

/**
 * The p-norm of every window of [N, C, H, W] or [C, H, W].
 *
 * @example
 * ```ts
 * import { device, nn, tensor } from "holdfast";
 * const cpu = await device("cpu");
 * console.log(new nn.LPPool2d(2, 2).forward(tensor([[[2, 2], [2, 2]]])).tolist()); // → [ [ [ 4 ] ] ]
 * cpu.close();
 * ```
 */
export class LPPool2d extends Module {
  readonly p: number;
  readonly kernelSize: PerAxis;
  readonly options: LpPoolOptions;

  constructor(p: number, kernelSize: PerAxis, options: LpPoolOptions = {}) {
    checkOptions("nn.LPPool2d", options, lpPoolOptionNames);
    super();
    this.p = p;
    this.kernelSize = kernelSize;
    this.options = options;
  }

  /** [N, C, H, W] or [C, H, W] to the norms of its windows. */
  forward(x: Tensor): Tensor {
    return lpPool2d(x, this.p, this.kernelSize, this.options);
  }

  protected override describe(): string {
    return `p=${this.p}, kernelSize=${String(this.kernelSize)}`;
  }
}

/**
 * Resizes [N, C, …] to a size or by a factor; see `nn.functional.interpolate`.
 *
 * @example
 * ```ts
 * import { device, nn, tensor } from "holdfast";
 * const cpu = await device("cpu");
 * const layer = new nn.Upsample({ scaleFactor: 2, mode: "linear" });
 * console.log(layer.forward(tensor([[[1, 3]]])).flatten().tolist()); // → [ 1, 1.5, 2.5, 3 ]
 * cpu.close();
 * ```
 */
export class Upsample extends Module {
  readonly options: InterpolateOptions;

  constructor(options: InterpolateOptions) {
    checkOptions("nn.Upsample", options, interpolateOptionNames);
    super();
    this.options = options;
  }

  /** [N, C, …] to the new size. */
  forward(x: Tensor): Tensor {
    return interpolate(x, this.options);
  }

  protected override describe(): string {
    return Object.entries(this.options)
      .map(([name, value]) => `${name}=${String(value)}`)
      .join(", ");
  }
}

/**
 * Moves channels to pixels: [N, C · r², H, W] becomes [N, C, H · r, W · r].
 *
 * @example
 * ```ts
 * import { device, nn, ones } from "holdfast";
 * const cpu = await device("cpu");
 * console.log(new nn.PixelShuffle(2).forward(ones([1, 4, 2, 3])).shape); // → [ 1, 1, 4, 6 ]
 * cpu.close();
 * ```
 */
export class PixelShuffle extends Module {
  readonly upscaleFactor: number;

  constructor(upscaleFactor: number) {
    super();
    requireSizes("PixelShuffle", { upscaleFactor });
    this.upscaleFactor = upscaleFactor;
  }

  /** See `nn.functional.pixelShuffle`. */
  forward(x: Tensor): Tensor {
    return pixelShuffle(x, this.upscaleFactor);
  }

  protected override describe(): string {
    return `upscaleFactor=${this.upscaleFactor}`;
  }
}

/**
 * Moves pixels to channels: [N, C, H · r, W · r] becomes [N, C · r², H, W].
 *
 * @example
 * ```ts
 * import { device, nn, ones } from "holdfast";
 * const cpu = await device("cpu");
 * console.log(new nn.PixelUnshuffle(2).forward(ones([1, 1, 4, 6])).shape); // → [ 1, 4, 2, 3 ]
 * cpu.close();
 * ```
 */
export class PixelUnshuffle extends Module {
  readonly downscaleFactor: number;

  constructor(downscaleFactor: number) {
    super();
    requireSizes("PixelUnshuffle", { downscaleFactor });
    this.downscaleFactor = downscaleFactor;
  }

  /** See `nn.functional.pixelUnshuffle`. */
  forward(x: Tensor): Tensor {
    return pixelUnshuffle(x, this.downscaleFactor);
  }

  protected override describe(): string {
    return `downscaleFactor=${this.downscaleFactor}`;
  }
}

/**
 * Mixes the channels of groups of [N, C, …].
 *
 * @example
 * ```ts
 * import { device, nn, ones } from "holdfast";
 * const cpu = await device("cpu");
 * console.log(new nn.ChannelShuffle(2).forward(ones([1, 4, 2])).shape); // → [ 1, 4, 2 ]
 * cpu.close();
 * ```
 */
export class ChannelShuffle extends Module {
  readonly groups: number;

  constructor(groups: number) {
    super();
    requireSizes("ChannelShuffle", { groups });
    this.groups = groups;
  }

  /** See `nn.functional.channelShuffle`. */
  forward(x: Tensor): Tensor {
    return channelShuffle(x, this.groups);
  }

  protected override describe(): string {
    return `groups=${this.groups}`;
  }
}
