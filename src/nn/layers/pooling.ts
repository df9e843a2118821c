/** Pooling: the maximum or mean of every window. */

import { checkOptions, type OptionNames } from "../../errors/index.js";
import type { PerAxis } from "../../ops/index.js";
import type { PoolOptions, Tensor } from "../../tensor/index.js";
import { poolOptionNames } from "../../tensor/index.js";
import { avgPool1d, avgPool2d, avgPool3d, maxPool1d, maxPool2d, maxPool3d } from "../functional.js";
import { Module } from "../module.js";

/** Average pooling has no dilation. */
export type AvgPoolOptions = Omit<PoolOptions, "dilation">;

const avgPoolOptionNames: OptionNames<AvgPoolOptions> = { stride: true, padding: true };

abstract class Pool<Options extends PoolOptions> extends Module {
  readonly kernelSize: PerAxis;
  /** Stride (default: the kernel's size), padding and, for max pooling, dilation. */
  readonly options: Options;

  constructor(kernelSize: PerAxis, options: Options) {
    super();
    this.kernelSize = kernelSize;
    this.options = options;
  }

  protected override describe(): string {
    const options = Object.entries({ kernelSize: this.kernelSize, ...this.options });
    return options
      .map(([name, value]) => `${name}=${Array.isArray(value) ? `[${value.join(", ")}]` : value}`)
      .join(", ");
  }
}

/**
 * The maximum of every window along [batch, channels, length].
 *
 * @example
 * ```ts
 * import { device, nn, tensor } from "holdfast";
 * const cpu = await device("cpu");
 * console.log(new nn.MaxPool1d(2).forward(tensor([[1, 3, 2, 5]])).tolist()); // → [ [ 3, 5 ] ]
 * cpu.close();
 * ```
 */
export class MaxPool1d extends Pool<PoolOptions> {
  constructor(kernelSize: PerAxis, options: PoolOptions = {}) {
    checkOptions("nn.MaxPool1d", options, poolOptionNames);
    super(kernelSize, options);
  }

  /** [N, C, L] or [C, L] to the maxima of its windows. */
  forward(x: Tensor): Tensor {
    return maxPool1d(x, this.kernelSize, this.options);
  }
}

/**
 * The maximum of every window over [batch, channels, height, width].
 *
 * @example
 * ```ts
 * import { device, nn, tensor } from "holdfast";
 * const cpu = await device("cpu");
 * console.log(new nn.MaxPool2d(2).forward(tensor([[[1, 3], [2, 5]]])).tolist()); // → [ [ [ 5 ] ] ]
 * cpu.close();
 * ```
 */
export class MaxPool2d extends Pool<PoolOptions> {
  constructor(kernelSize: PerAxis, options: PoolOptions = {}) {
    checkOptions("nn.MaxPool2d", options, poolOptionNames);
    super(kernelSize, options);
  }

  /** [N, C, H, W] or [C, H, W] to the maxima of its windows. */
  forward(x: Tensor): Tensor {
    return maxPool2d(x, this.kernelSize, this.options);
  }
}

/**
 * The mean of every window along [batch, channels, length].
 *
 * @example
 * ```ts
 * import { device, nn, tensor } from "holdfast";
 * const cpu = await device("cpu");
 * console.log(new nn.AvgPool1d(2).forward(tensor([[1, 3, 2, 6]])).tolist()); // → [ [ 2, 4 ] ]
 * cpu.close();
 * ```
 */
export class AvgPool1d extends Pool<AvgPoolOptions> {
  constructor(kernelSize: PerAxis, options: AvgPoolOptions = {}) {
    checkOptions("nn.AvgPool1d", options, avgPoolOptionNames);
    super(kernelSize, options);
  }

  /** [N, C, L] or [C, L] to the means of its windows. */
  forward(x: Tensor): Tensor {
    return avgPool1d(x, this.kernelSize, this.options);
  }
}

/**
 * The mean of every window over [batch, channels, height, width].
 *
 * @example
 * ```ts
 * import { device, nn, tensor } from "holdfast";
 * const cpu = await device("cpu");
 * console.log(new nn.AvgPool2d(2).forward(tensor([[[1, 3], [2, 6]]])).tolist()); // → [ [ [ 3 ] ] ]
 * cpu.close();
 * ```
 */
export class AvgPool2d extends Pool<AvgPoolOptions> {
  constructor(kernelSize: PerAxis, options: AvgPoolOptions = {}) {
    checkOptions("nn.AvgPool2d", options, avgPoolOptionNames);
    super(kernelSize, options);
  }

  /** [N, C, H, W] or [C, H, W] to the means of its windows. */
  forward(x: Tensor): Tensor {
    return avgPool2d(x, this.kernelSize, this.options);
  }
}

/**
 * The maximum of every window over [batch, channels, depth, height, width].
 *
 * @example
 * ```ts
 * import { arange, device, nn } from "holdfast";
 * const cpu = await device("cpu");
 * const x = arange(8).to("f32").reshape([1, 2, 2, 2]);
 * console.log(new nn.MaxPool3d(2).forward(x).item()); // → 7
 * cpu.close();
 * ```
 */
export class MaxPool3d extends Pool<PoolOptions> {
  constructor(kernelSize: PerAxis, options: PoolOptions = {}) {
    checkOptions("nn.MaxPool3d", options, poolOptionNames);
    super(kernelSize, options);
  }

  /** [N, C, D, H, W] or [C, D, H, W] to the maximums of its windows. */
  forward(x: Tensor): Tensor {
    return maxPool3d(x, this.kernelSize, this.options);
  }
}

/**
 * The mean of every window over [batch, channels, depth, height, width].
 *
 * @example
 * ```ts
 * import { arange, device, nn } from "holdfast";
 * const cpu = await device("cpu");
 * const x = arange(8).to("f32").reshape([1, 2, 2, 2]);
 * console.log(new nn.AvgPool3d(2).forward(x).item()); // → 3.5
 * cpu.close();
 * ```
 */
export class AvgPool3d extends Pool<AvgPoolOptions> {
  constructor(kernelSize: PerAxis, options: AvgPoolOptions = {}) {
    checkOptions("nn.AvgPool3d", options, avgPoolOptionNames);
    super(kernelSize, options);
  }

  /** [N, C, D, H, W] or [C, D, H, W] to the means of its windows. */
  forward(x: Tensor): Tensor {
    return avgPool3d(x, this.kernelSize, this.options);
  }
}
