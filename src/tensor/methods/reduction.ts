/** Reductions, softmax and products as methods of tensors. */

import {
  all,
  amax,
  amin,
  any,
  argmax,
  argmin,
  cumsum,
  logSoftmax,
  logsumexp,
  matmul,
  mean,
  norm,
  type PlaceAttributes,
  prod,
  type ReductionAttributes,
  softmax,
  std,
  sum,
  variance,
} from "../../ops/index.js";
import type { Tensor } from "../tensor.js";

/** One axis, several, or all where none are named; counted from the end where negative. */
export type Axes = number | readonly number[];

export interface ReductionOptions {
  /** Reduced axes stay, with size 1. */
  readonly keepdim?: boolean;
}

export interface VarianceOptions extends ReductionOptions {
  /** How much less than the count the sum of squares is divided by; 1 unless given. */
  readonly correction?: number;
}

export interface NormOptions extends ReductionOptions {
  /** 2 unless given; may be infinite. */
  readonly p?: number;
}

export function reductionAttributes(
  axes: Axes | undefined,
  { keepdim = false }: ReductionOptions,
): ReductionAttributes {
  return { keepsAxes: keepdim, ...(axes !== undefined && { axes }) };
}

function placeAttributes(axis: number | undefined, { keepdim = false }: ReductionOptions): PlaceAttributes {
  return { keepsAxes: keepdim, ...(axis !== undefined && { axis }) };
}

export const reductionMethods = {
  /** The sum over axes, or over everything. */
  sum(this: Tensor, axes?: Axes, options: ReductionOptions = {}): Tensor {
    return this.device.apply(sum, [this], reductionAttributes(axes, options));
  },
  /** The mean over axes, or over everything. */
  mean(this: Tensor, axes?: Axes, options: ReductionOptions = {}): Tensor {
    return this.device.apply(mean, [this], reductionAttributes(axes, options));
  },
  /** The largest element over axes, or of all; NaN if there is one. Equal elements share the gradient. */
  amax(this: Tensor, axes?: Axes, options: ReductionOptions = {}): Tensor {
    return this.device.apply(amax, [this], reductionAttributes(axes, options));
  },
  /** The smallest element over axes, or of all; NaN if there is one. Equal elements share the gradient. */
  amin(this: Tensor, axes?: Axes, options: ReductionOptions = {}): Tensor {
    return this.device.apply(amin, [this], reductionAttributes(axes, options));
  },
  /** The product over axes, or of everything. */
  prod(this: Tensor, axes?: Axes, options: ReductionOptions = {}): Tensor {
    return this.device.apply(prod, [this], reductionAttributes(axes, options));
  },
  /** The variance over axes, or of everything: divided by the count less `correction`, which is 1. */
  var(this: Tensor, axes?: Axes, { correction = 1, ...options }: VarianceOptions = {}): Tensor {
    return this.device.apply(variance, [this], { ...reductionAttributes(axes, options), correction });
  },
  /** The standard deviation over axes, or of everything: the root of `var`. */
  std(this: Tensor, axes?: Axes, { correction = 1, ...options }: VarianceOptions = {}): Tensor {
    return this.device.apply(std, [this], { ...reductionAttributes(axes, options), correction });
  },
  /** The p-norm over axes, or of everything: (Σ |x|^p)^(1/p), with a p of 2. */
  norm(this: Tensor, axes?: Axes, { p = 2, ...options }: NormOptions = {}): Tensor {
    return this.device.apply(norm, [this], { ...reductionAttributes(axes, options), p });
  },
  /** log Σ exp(x) over axes, or over everything; it does not overflow. */
  logsumexp(this: Tensor, axes?: Axes, options: ReductionOptions = {}): Tensor {
    return this.device.apply(logsumexp, [this], reductionAttributes(axes, options));
  },
  /** Where the largest element stands along an axis, or in the whole tensor's order, as i32; the first of equals. */
  argmax(this: Tensor, axis?: number, options: ReductionOptions = {}): Tensor {
    return this.device.apply(argmax, [this], placeAttributes(axis, options));
  },
  /** Where the smallest element stands along an axis, or in the whole tensor's order, as i32; the first of equals. */
  argmin(this: Tensor, axis?: number, options: ReductionOptions = {}): Tensor {
    return this.device.apply(argmin, [this], placeAttributes(axis, options));
  },
  /** Is every element true, that is not 0? Over axes, or over everything. */
  all(this: Tensor, axes?: Axes, options: ReductionOptions = {}): Tensor {
    return this.device.apply(all, [this], reductionAttributes(axes, options));
  },
  /** Is any element true, that is not 0? Over axes, or over everything. */
  any(this: Tensor, axes?: Axes, options: ReductionOptions = {}): Tensor {
    return this.device.apply(any, [this], reductionAttributes(axes, options));
  },
  /** Along an axis, the sum of each element and all before it. */
  cumsum(this: Tensor, axis: number): Tensor {
    return this.device.apply(cumsum, [this], { axis });
  },
  /** Along an axis, each element's exponential over their sum. */
  softmax(this: Tensor, axis: number): Tensor {
    return this.device.apply(softmax, [this], { axis });
  },
  /** The logarithm of `softmax`, exact also where that is 0. */
  logSoftmax(this: Tensor, axis: number): Tensor {
    return this.device.apply(logSoftmax, [this], { axis });
  },
  /** The product of matrices, vectors, or batches of matrices. */
  matmul(this: Tensor, other: Tensor): Tensor {
    return this.device.apply(matmul, [this, other]);
  },
};
