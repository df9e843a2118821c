/** Reductions and products as methods of tensors. */

import { matmul, mean, type ReductionAttributes, sum } from "../../ops/index.js";
import type { Tensor } from "../tensor.js";

/** One axis, several, or all where none are named; counted from the end where negative. */
export type Axes = number | readonly number[];

export interface ReductionOptions {
  /** Reduced axes stay, with size 1. */
  readonly keepdim?: boolean;
}

export function reductionAttributes(
  axes: Axes | undefined,
  { keepdim = false }: ReductionOptions,
): ReductionAttributes {
  return { keepsAxes: keepdim, ...(axes !== undefined && { axes }) };
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
  /** The product of matrices, vectors, or batches of matrices. */
  matmul(this: Tensor, other: Tensor): Tensor {
    return this.device.apply(matmul, [this, other]);
  },
};
