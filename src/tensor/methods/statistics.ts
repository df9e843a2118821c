/** Sums without NaN, pairs of statistics, and covariance, as methods of tensors. */

import { checkOptions } from "../../errors/index.js";
import type { Tensor } from "../tensor.js";
import type { Axes, ReductionOptions, VarianceOptions } from "./reduction.js";
import { reductionOptionNames, varianceOptionNames } from "./reduction.js";

/** The options of `cov`. */
export interface CovarianceOptions {
  /** Subtracted from the count of observations in the divisor. Default: 1. */
  readonly correction?: number;
  /** How often each observation was made: whole numbers. */
  readonly fweights?: Tensor;
  /** The weight of each observation. */
  readonly aweights?: Tensor;
}

export const statisticsMethods = {
  /**
   * The sum of all elements except NaN.
   *
   * @example
   * ```ts
   * import { device, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * console.log(tensor([1, NaN, 3]).nansum().item()); // → 4
   * cpu.close();
   * ```
   */
  nansum(this: Tensor, axes?: Axes, options: ReductionOptions = {}): Tensor {
    checkOptions("nansum", options, reductionOptionNames);
    return this.where(this.isnan().logicalNot(), 0).sum(axes, options);
  },
  /**
   * The mean of all elements except NaN.
   *
   * @example
   * ```ts
   * import { device, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * console.log(tensor([1, NaN, 3]).nanmean().item()); // → 2
   * cpu.close();
   * ```
   */
  nanmean(this: Tensor, axes?: Axes, options: ReductionOptions = {}): Tensor {
    checkOptions("nanmean", options, reductionOptionNames);
    const isNumber = this.isnan().logicalNot();
    return this.where(isNumber, 0).sum(axes, options).div(isNumber.sum(axes, options));
  },
  /**
   * The number of elements that are not 0, along axes or of all.
   *
   * @example
   * ```ts
   * import { device, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * console.log(tensor([[1, 0], [2, 3]]).countNonzero(1).tolist()); // → [ 1, 2 ]
   * cpu.close();
   * ```
   */
  countNonzero(this: Tensor, axes?: Axes): Tensor {
    return this.ne(0).sum(axes);
  },
  /**
   * The standard deviation and the mean.
   *
   * @example
   * ```ts
   * import { device, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * const [std, mean] = tensor([1, 2, 3]).stdMean();
   * console.log(std.item(), mean.item()); // → 1 2
   * cpu.close();
   * ```
   */
  stdMean(this: Tensor, axes?: Axes, options: VarianceOptions = {}): readonly [Tensor, Tensor] {
    checkOptions("stdMean", options, varianceOptionNames);
    return [this.std(axes, options), this.mean(axes, { keepdim: options.keepdim ?? false })];
  },
  /**
   * The variance and the mean.
   *
   * @example
   * ```ts
   * import { device, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * const [variance, mean] = tensor([1, 2, 3]).varMean();
   * console.log(variance.item(), mean.item()); // → 1 2
   * cpu.close();
   * ```
   */
  varMean(this: Tensor, axes?: Axes, options: VarianceOptions = {}): readonly [Tensor, Tensor] {
    checkOptions("varMean", options, varianceOptionNames);
    return [this.var(axes, options), this.mean(axes, { keepdim: options.keepdim ?? false })];
  },
  /**
   * The minimum and the maximum, along an axis or of all elements.
   *
   * @example
   * ```ts
   * import { device, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * const { min, max } = tensor([3, 1, 2]).aminmax();
   * console.log(min.item(), max.item()); // → 1 3
   * cpu.close();
   * ```
   */
  aminmax(
    this: Tensor,
    axis?: number,
    options: ReductionOptions = {},
  ): { readonly min: Tensor; readonly max: Tensor } {
    checkOptions("aminmax", options, reductionOptionNames);
    return { min: this.amin(axis, options), max: this.amax(axis, options) };
  },
  /**
   * The covariance matrix: a row of this matrix is a variable, and a column an observation. Options as in PyTorch.
   *
   * @example
   * ```ts
   * import { device, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * console.log(tensor([[1, 2, 3], [3, 2, 1]]).cov().tolist()); // → [ [ 1, -1 ], [ -1, 1 ] ]
   * cpu.close();
   * ```
   */
  cov(this: Tensor, options: CovarianceOptions = {}): Tensor {
    const {
      correction = 1,
      fweights,
      aweights,
    } = checkOptions("cov", options, { correction: true, fweights: true, aweights: true });
    const x = this.ndim < 2 ? this.reshape([1, -1]) : this;
    const counts = fweights && aweights ? aweights.mul(fweights) : (aweights ?? fweights?.to(x.dtype));
    const total = counts ? counts.sum() : (x.shape[1] ?? 0);
    const mean = (counts ? x.mul(counts) : x).sum(1, { keepdim: true }).div(total);
    const centred = x.sub(mean);
    const weighted = counts ? centred.mul(counts) : centred;
    let lost: Tensor | number = correction;
    if (counts && aweights) lost = counts.mul(aweights).sum().div(total).mul(correction);
    const divisor = typeof total === "number" ? Math.max(0, total - correction) : total.sub(lost).clampMin(0);
    return centred.matmul(weighted.t()).div(divisor).squeeze();
  },
  /**
   * The correlation coefficients of the rows.
   *
   * @example
   * ```ts
   * import { device, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * console.log(tensor([[1, 2, 3], [3, 2, 1]]).corrcoef().tolist()); // → [ [ 1, -1 ], [ -1, 1 ] ]
   * cpu.close();
   * ```
   */
  corrcoef(this: Tensor): Tensor {
    const covariance = this.cov();
    if (covariance.ndim === 0) return covariance.div(covariance);
    const deviation = covariance.diagonal().sqrt();
    return covariance.div(deviation.unsqueeze(1)).div(deviation).clamp(-1, 1);
  },
};
