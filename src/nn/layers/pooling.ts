/** Pooling: the maximum or mean of every window, and the inverse of max pooling. */

import { checkOptions } from "../../errors/index.js";
import type { PerAxis } from "../../ops/index.js";
import {
  type AvgPoolOptions,
  avgPoolOptionNames,
  type MaxPoolOptions,
  type MaxPoolResult,
  maxPoolOptionNames,
  type PoolOptions,
  type Tensor,
} from "../../tensor/index.js";
import {
  avgPool1d,
  avgPool2d,
  avgPool3d,
  type MaxUnpoolOptions,
  maxPool1d,
  maxPool2d,
  maxPool3d,
  maxUnpool1d,
  maxUnpool2d,
  maxUnpool3d,
} from "../functional.js";
import { Module } from "../module.js";

const unpoolOptionNames = { stride: true, padding: true } as const;

export type { AvgPoolOptions } from "../../tensor/index.js";

abstract class Pool<Options extends PoolOptions> extends Module {
  readonly kernelSize: PerAxis;
  /** As for the function of `nn.functional`; the default stride is the kernel's size. */
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
export class MaxPool1d<WithIndices extends boolean = false> extends Pool<MaxPoolOptions<WithIndices>> {
  constructor(kernelSize: PerAxis, options: MaxPoolOptions<WithIndices> = {}) {
    checkOptions("nn.MaxPool1d", options, maxPoolOptionNames);
    super(kernelSize, options);
  }

  /** [N, C, L] or [C, L] to the maxima of its windows, with `returnIndices` as `{ values, indices }`. */
  forward(x: Tensor): MaxPoolResult<WithIndices> {
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
export class MaxPool2d<WithIndices extends boolean = false> extends Pool<MaxPoolOptions<WithIndices>> {
  constructor(kernelSize: PerAxis, options: MaxPoolOptions<WithIndices> = {}) {
    checkOptions("nn.MaxPool2d", options, maxPoolOptionNames);
    super(kernelSize, options);
  }

  /** [N, C, H, W] or [C, H, W] to the maxima of its windows, with `returnIndices` as `{ values, indices }`. */
  forward(x: Tensor): MaxPoolResult<WithIndices> {
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
export class MaxPool3d<WithIndices extends boolean = false> extends Pool<MaxPoolOptions<WithIndices>> {
  constructor(kernelSize: PerAxis, options: MaxPoolOptions<WithIndices> = {}) {
    checkOptions("nn.MaxPool3d", options, maxPoolOptionNames);
    super(kernelSize, options);
  }

  /** [N, C, D, H, W] or [C, D, H, W] to the maxima of its windows, with `returnIndices` as `{ values, indices }`. */
  forward(x: Tensor): MaxPoolResult<WithIndices> {
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

/**
 * The maxima of `MaxPool1d` at their indices, and zeros elsewhere.
 *
 * @example
 * ```ts
 * import { device, nn, tensor } from "holdfast";
 * const cpu = await device("cpu");
 * const { values, indices } = nn.functional.maxPool1d(tensor([[1, 3]]), 2, { returnIndices: true });
 * console.log(new nn.MaxUnpool1d(2).forward(values, indices).tolist()); // → [ [ 0, 3 ] ]
 * cpu.close();
 * ```
 */
export class MaxUnpool1d extends Pool<Omit<MaxUnpoolOptions, "outputSize">> {
  constructor(kernelSize: PerAxis, options: Omit<MaxUnpoolOptions, "outputSize"> = {}) {
    checkOptions("nn.MaxUnpool1d", options, unpoolOptionNames);
    super(kernelSize, options);
  }

  /** [N, C, L] or [C, L]; pass an `outputSize` if the pool left elements out. */
  forward(x: Tensor, indices: Tensor, outputSize?: readonly number[]): Tensor {
    return maxUnpool1d(x, indices, this.kernelSize, { ...this.options, ...(outputSize && { outputSize }) });
  }
}

/**
 * The maxima of `MaxPool2d` at their indices, and zeros elsewhere.
 *
 * @example
 * ```ts
 * import { device, nn, tensor } from "holdfast";
 * const cpu = await device("cpu");
 * const pool = new nn.MaxPool2d(2, { returnIndices: true });
 * const { values, indices } = pool.forward(tensor([[[1, 3], [5, 2]]]));
 * console.log(new nn.MaxUnpool2d(2).forward(values, indices).tolist()); // → [ [ [ 0, 0 ], [ 5, 0 ] ] ]
 * cpu.close();
 * ```
 */
export class MaxUnpool2d extends Pool<Omit<MaxUnpoolOptions, "outputSize">> {
  constructor(kernelSize: PerAxis, options: Omit<MaxUnpoolOptions, "outputSize"> = {}) {
    checkOptions("nn.MaxUnpool2d", options, unpoolOptionNames);
    super(kernelSize, options);
  }

  /** [N, C, H, W] or [C, H, W]; pass an `outputSize` if the pool left elements out. */
  forward(x: Tensor, indices: Tensor, outputSize?: readonly number[]): Tensor {
    return maxUnpool2d(x, indices, this.kernelSize, { ...this.options, ...(outputSize && { outputSize }) });
  }
}

/**
 * The maxima of `MaxPool3d` at their indices, and zeros elsewhere.
 *
 * @example
 * ```ts
 * import { device, nn, tensor } from "holdfast";
 * const cpu = await device("cpu");
 * const pool = new nn.MaxPool3d([1, 1, 2], { returnIndices: true });
 * const { values, indices } = pool.forward(tensor([[[[4, 9]]]]));
 * console.log(String(new nn.MaxUnpool3d([1, 1, 2]).forward(values, indices).flatten().tolist())); // → 0,9
 * cpu.close();
 * ```
 */
export class MaxUnpool3d extends Pool<Omit<MaxUnpoolOptions, "outputSize">> {
  constructor(kernelSize: PerAxis, options: Omit<MaxUnpoolOptions, "outputSize"> = {}) {
    checkOptions("nn.MaxUnpool3d", options, unpoolOptionNames);
    super(kernelSize, options);
  }

  /** [N, C, D, H, W] or [C, D, H, W]; pass an `outputSize` if the pool left elements out. */
  forward(x: Tensor, indices: Tensor, outputSize?: readonly number[]): Tensor {
    return maxUnpool3d(x, indices, this.kernelSize, { ...this.options, ...(outputSize && { outputSize }) });
  }
}
