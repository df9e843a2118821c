/** Sums and statistics as methods of tensors, over axes or over all elements. */

import { checkOptions, type OptionNames } from "../../errors/index.js";
import {
  cumsum,
  logsumexp,
  mean,
  norm,
  prod,
  type ReductionAttributes,
  std,
  sum,
  variance,
} from "../../ops/index.js";
import type { Tensor } from "../tensor.js";

/** One axis or several. Negative axes count from the end. Default: all axes. */
export type Axes = number | readonly number[];

export interface ReductionOptions {
  /** Keep reduced axes, with size 1. Default: false. */
  readonly keepdim?: boolean;
}

export const reductionOptionNames: OptionNames<ReductionOptions> = { keepdim: true };

export function reductionAttributes(
  axes: Axes | undefined,
  { keepdim = false }: ReductionOptions,
): ReductionAttributes {
  return { keepsAxes: keepdim, ...(axes !== undefined && { axes }) };
}

export interface VarianceOptions extends ReductionOptions {
  /** Subtracted from the count in the divisor. Default: 1. */
  readonly correction?: number;
}

export const varianceOptionNames: OptionNames<VarianceOptions> = { correction: true, keepdim: true };

export interface NormOptions extends ReductionOptions {
  /** The exponent; may be infinite. Default: 2. */
  readonly p?: number;
}

export const reductionMethods = {
  /**
   * The sum over axes, or over all elements. Negative axes count from the end. The sum of integers or booleans is i32.
   *
   * @example
   * ```ts
   * import { device, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * const x = tensor([[1, 2, 3], [4, 5, 6]]);
   * console.log(x.sum(-1).tolist(), x.sum(0, { keepdim: true }).tolist(), x.sum().item());
   * // → [ 6, 15 ] [ [ 5, 7, 9 ] ] 21
   * cpu.close();
   * ```
   */
  sum(this: Tensor, axes?: Axes, options: ReductionOptions = {}): Tensor {
    checkOptions("sum", options, reductionOptionNames);
    return this.device.apply(sum, [this], reductionAttributes(axes, options));
  },
  /**
   * The mean over axes, or over all elements.
   *
   * @example
   * ```ts
   * import { device, ones } from "holdfast";
   * const cpu = await device("cpu");
   * const images = ones([8, 3, 4, 4]);
   * console.log(images.mean([0, 2, 3]).tolist()); // → [ 1, 1, 1 ]
   * cpu.close();
   * ```
   */
  mean(this: Tensor, axes?: Axes, options: ReductionOptions = {}): Tensor {
    checkOptions("mean", options, reductionOptionNames);
    return this.device.apply(mean, [this], reductionAttributes(axes, options));
  },
  /**
   * The product over axes, or over all elements.
   *
   * @example
   * ```ts
   * import { device, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * console.log(tensor([[1, 2], [3, 4]]).prod(1).tolist()); // → [ 2, 12 ]
   * cpu.close();
   * ```
   */
  prod(this: Tensor, axes?: Axes, options: ReductionOptions = {}): Tensor {
    checkOptions("prod", options, reductionOptionNames);
    return this.device.apply(prod, [this], reductionAttributes(axes, options));
  },
  /**
   * The variance over axes, or over all elements. The divisor is the count minus `correction` (default: 1).
   *
   * @example
   * ```ts
   * import { device, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * const x = tensor([1, 2, 3, 4, 5]);
   * console.log(x.var().item(), x.var(0, { correction: 0 }).item()); // → 2.5 2
   * cpu.close();
   * ```
   */
  var(this: Tensor, axes?: Axes, given: VarianceOptions = {}): Tensor {
    const { correction = 1, ...options } = checkOptions("var", given, varianceOptionNames);
    return this.device.apply(variance, [this], { ...reductionAttributes(axes, options), correction });
  },
  /**
   * The standard deviation over axes, or over all elements: the square root of `var`.
   *
   * @example
   * ```ts
   * import { device, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * console.log(tensor([[1, 3], [10, 30]]).std(1, { correction: 0 }).tolist()); // → [ 1, 10 ]
   * cpu.close();
   * ```
   */
  std(this: Tensor, axes?: Axes, given: VarianceOptions = {}): Tensor {
    const { correction = 1, ...options } = checkOptions("std", given, varianceOptionNames);
    return this.device.apply(std, [this], { ...reductionAttributes(axes, options), correction });
  },
  /**
   * The p-norm over axes, or over all elements: (Σ |x|^p)^(1/p). Default p: 2.
   *
   * @example
   * ```ts
   * import { device, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * const x = tensor([3, -4]);
   * console.log(x.norm().item(), x.norm(0, { p: 1 }).item(), x.norm(0, { p: Infinity }).item()); // → 5 7 4
   * cpu.close();
   * ```
   */
  norm(this: Tensor, axes?: Axes, given: NormOptions = {}): Tensor {
    const { p = 2, ...options } = checkOptions("norm", given, { p: true, keepdim: true });
    return this.device.apply(norm, [this], { ...reductionAttributes(axes, options), p });
  },
  /**
   * log Σ exp(x) over axes, or over all elements; it does not overflow.
   *
   * @example
   * ```ts
   * import { device, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * console.log(tensor([[1000, -1000], [5, -Infinity]]).logsumexp(1).tolist()); // → [ 1000, 5 ]
   * cpu.close();
   * ```
   */
  logsumexp(this: Tensor, axes?: Axes, options: ReductionOptions = {}): Tensor {
    checkOptions("logsumexp", options, reductionOptionNames);
    return this.device.apply(logsumexp, [this], reductionAttributes(axes, options));
  },
  /**
   * The cumulative sum along an axis.
   *
   * @example
   * ```ts
   * import { device, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * console.log(tensor([[1, 2, 3], [4, 5, 6]]).cumsum(-1).tolist()); // → [ [ 1, 3, 6 ], [ 4, 9, 15 ] ]
   * cpu.close();
   * ```
   */
  cumsum(this: Tensor, axis: number): Tensor {
    return this.device.apply(cumsum, [this], { axis });
  },
};
