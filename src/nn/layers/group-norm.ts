/** GroupNorm and LocalResponseNorm: normalize channels, without running statistics. */

import { checkOptions } from "../../errors/index.js";
import type { Tensor } from "../../tensor/index.js";
import { localResponseNormOptionNames } from "../functional/batch-norm.js";
import { groupNorm, type LocalResponseNormOptions, localResponseNorm } from "../functional.js";
import { ones, zeros } from "../init.js";
import { Module } from "../module.js";
import { Parameter } from "../parameter.js";
import { requireDivides, requireSizes } from "./checks.js";

/** Options of a `GroupNorm` layer. */
export interface GroupNormOptions {
  /** Added to the variance. Default: 1e-5. */
  readonly eps?: number;
  /** Learn a weight and a bias for each channel. Default: true. */
  readonly affine?: boolean;
}

/**
 * Normalizes groups of channels of each element of a batch [N, C, …], then applies a weight and a bias for each channel.
 *
 * @example
 * ```ts
 * import { device, nn, tensor } from "holdfast";
 * const cpu = await device("cpu");
 * const norm = new nn.GroupNorm(2, 4, { eps: 0 }).to(cpu);
 * console.log(norm.forward(tensor([[1, 3, 10, 30]])).tolist()); // → [ [ -1, 1, -1, 1 ] ]
 * cpu.close();
 * ```
 */
export class GroupNorm extends Module {
  readonly numGroups: number;
  readonly numChannels: number;
  readonly eps: number;
  readonly weight: Parameter | null;
  readonly bias: Parameter | null;

  constructor(numGroups: number, numChannels: number, options: GroupNormOptions = {}) {
    const { eps = 1e-5, affine = true } = checkOptions("nn.GroupNorm", options, { eps: true, affine: true });
    super();
    requireSizes("GroupNorm", { numGroups, numChannels });
    requireDivides("GroupNorm", numChannels, "numChannels", numGroups, "groups");
    this.numGroups = numGroups;
    this.numChannels = numChannels;
    this.eps = eps;
    this.weight = affine ? new Parameter([numChannels], ones()) : null;
    this.bias = affine ? new Parameter([numChannels], zeros()) : null;
  }

  /** [N, C, …] to the same shape. */
  forward(x: Tensor): Tensor {
    return groupNorm(x, this.numGroups, this.weight, this.bias, this.eps);
  }

  protected override describe(): string {
    return `${this.numGroups}, ${this.numChannels}, eps=${this.eps}, affine=${this.weight !== null}`;
  }
}

/**
 * Divides each element by a power of the mean square of neighbouring channels; see `nn.functional.localResponseNorm`.
 *
 * @example
 * ```ts
 * import { device, nn, ones } from "holdfast";
 * const cpu = await device("cpu");
 * const norm = new nn.LocalResponseNorm(1, { alpha: 1, beta: 1 });
 * console.log(norm.forward(ones([1, 2, 1])).flatten().tolist()); // → [ 0.5, 0.5 ]
 * cpu.close();
 * ```
 */
export class LocalResponseNorm extends Module {
  readonly size: number;
  readonly options: LocalResponseNormOptions;

  constructor(size: number, options: LocalResponseNormOptions = {}) {
    checkOptions("nn.LocalResponseNorm", options, localResponseNormOptionNames);
    super();
    requireSizes("LocalResponseNorm", { size });
    this.size = size;
    this.options = options;
  }

  /** [N, C, …] to the same shape. */
  forward(x: Tensor): Tensor {
    return localResponseNorm(x, this.size, this.options);
  }

  protected override describe(): string {
    return [this.size, ...Object.entries(this.options).map(([name, value]) => `${name}=${value}`)].join(", ");
  }
}
