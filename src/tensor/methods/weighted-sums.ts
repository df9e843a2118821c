/** Weighted sums of a tensor and a product of others, as methods of tensors, by PyTorch's names. A beta of 0 drops the tensor, NaN and all. */

import { checkOptions, HoldfastError, type OptionNames } from "../../errors/index.js";
import { broadcastShapes, contiguous, formatShape, isSameShape } from "../../ops/index.js";
import type { Tensor } from "../tensor.js";

/** The factors of the tensor and of the product. Default: 1. */
export interface SumFactors {
  readonly beta?: number;
  readonly alpha?: number;
}

const sumFactorNames: OptionNames<SumFactors> = { beta: true, alpha: true };

export const weightedSumMethods = {
  /**
   * This · beta + alpha · a · b, for matrices a and b.
   *
   * @example
   * ```ts
   * import { device, eye, tensor, zeros } from "holdfast";
   * const cpu = await device("cpu");
   * console.log(zeros([2, 2]).addmm(eye(2), tensor([[1, 2], [3, 4]]), { alpha: 10 }).tolist()); // → [ [ 10, 20 ], [ 30, 40 ] ]
   * cpu.close();
   * ```
   */
  addmm(this: Tensor, a: Tensor, b: Tensor, factors: SumFactors = {}): Tensor {
    checkOptions("addmm", factors, sumFactorNames);
    return weightedSum("addmm", this, productOf.addmm(a, b), factors);
  },
  /**
   * This · beta + alpha · a · b, for a matrix a and a vector b.
   *
   * @example
   * ```ts
   * import { device, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * console.log(tensor([1, 1]).addmv(tensor([[1, 2], [3, 4]]), tensor([1, 0])).tolist()); // → [ 2, 4 ]
   * cpu.close();
   * ```
   */
  addmv(this: Tensor, a: Tensor, b: Tensor, factors: SumFactors = {}): Tensor {
    checkOptions("addmv", factors, sumFactorNames);
    return weightedSum("addmv", this, productOf.addmv(a, b), factors);
  },
  /**
   * This · beta + alpha · the outer product of vectors a and b.
   *
   * @example
   * ```ts
   * import { device, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * console.log(tensor(1).addr(tensor([1, 2]), tensor([3, 4])).tolist()); // → [ [ 4, 5 ], [ 7, 9 ] ]
   * cpu.close();
   * ```
   */
  addr(this: Tensor, a: Tensor, b: Tensor, factors: SumFactors = {}): Tensor {
    checkOptions("addr", factors, sumFactorNames);
    return weightedSum("addr", this, productOf.addr(a, b), factors);
  },
  /**
   * This · beta + alpha · a · b, for batches of matrices a and b.
   *
   * @example
   * ```ts
   * import { device, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * console.log(tensor([5]).baddbmm(tensor([[[1, 2]]]), tensor([[[3], [4]]]), { beta: 2 }).tolist()); // → [ [ [ 21 ] ] ]
   * cpu.close();
   * ```
   */
  baddbmm(this: Tensor, a: Tensor, b: Tensor, factors: SumFactors = {}): Tensor {
    checkOptions("baddbmm", factors, sumFactorNames);
    return weightedSum("baddbmm", this, productOf.baddbmm(a, b), factors);
  },
  /**
   * This · beta + alpha · Σ a · b, summed over the batch, as one matrix product.
   *
   * @example
   * ```ts
   * import { device, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * console.log(tensor(0).addbmm(tensor([[[1]], [[2]]]), tensor([[[10]], [[100]]])).tolist()); // → [ [ 210 ] ]
   * cpu.close();
   * ```
   */
  addbmm(this: Tensor, a: Tensor, b: Tensor, factors: SumFactors = {}): Tensor {
    checkOptions("addbmm", factors, sumFactorNames);
    return weightedSum("addbmm", this, productOf.addbmm(a, b), factors);
  },
  /**
   * `addmm` in place.
   *
   * @example
   * ```ts
   * import { device, tensor, zeros } from "holdfast";
   * const cpu = await device("cpu");
   * console.log(zeros([1, 1]).addmm_(tensor([[2]]), tensor([[3]])).tolist()); // → [ [ 6 ] ]
   * cpu.close();
   * ```
   */
  addmm_(this: Tensor, a: Tensor, b: Tensor, factors: SumFactors = {}): Tensor {
    checkOptions("addmm_", factors, sumFactorNames);
    return this.device.applyInPlace(contiguous, this, [this.addmm(a, b, factors)]);
  },
  /**
   * `addmv` in place.
   *
   * @example
   * ```ts
   * import { device, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * console.log(tensor([1]).addmv_(tensor([[2]]), tensor([3])).tolist()); // → [ 7 ]
   * cpu.close();
   * ```
   */
  addmv_(this: Tensor, a: Tensor, b: Tensor, factors: SumFactors = {}): Tensor {
    checkOptions("addmv_", factors, sumFactorNames);
    return this.device.applyInPlace(contiguous, this, [this.addmv(a, b, factors)]);
  },
  /**
   * `addr` in place.
   *
   * @example
   * ```ts
   * import { device, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * console.log(tensor([[1]]).addr_(tensor([2]), tensor([3])).tolist()); // → [ [ 7 ] ]
   * cpu.close();
   * ```
   */
  addr_(this: Tensor, a: Tensor, b: Tensor, factors: SumFactors = {}): Tensor {
    checkOptions("addr_", factors, sumFactorNames);
    return this.device.applyInPlace(contiguous, this, [this.addr(a, b, factors)]);
  },
  /**
   * `baddbmm` in place.
   *
   * @example
   * ```ts
   * import { device, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * console.log(tensor([[[1]]]).baddbmm_(tensor([[[2]]]), tensor([[[3]]])).tolist()); // → [ [ [ 7 ] ] ]
   * cpu.close();
   * ```
   */
  baddbmm_(this: Tensor, a: Tensor, b: Tensor, factors: SumFactors = {}): Tensor {
    checkOptions("baddbmm_", factors, sumFactorNames);
    return this.device.applyInPlace(contiguous, this, [this.baddbmm(a, b, factors)]);
  },
  /**
   * `addbmm` in place.
   *
   * @example
   * ```ts
   * import { device, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * console.log(tensor([[1]]).addbmm_(tensor([[[2]], [[2]]]), tensor([[[3]], [[3]]])).tolist()); // → [ [ 13 ] ]
   * cpu.close();
   * ```
   */
  addbmm_(this: Tensor, a: Tensor, b: Tensor, factors: SumFactors = {}): Tensor {
    checkOptions("addbmm_", factors, sumFactorNames);
    return this.device.applyInPlace(contiguous, this, [this.addbmm(a, b, factors)]);
  },
};

const productOf = {
  addmm: (a: Tensor, b: Tensor) => ranked("addmm", a, b, [2, 2]).matmul(b),
  addmv: (a: Tensor, b: Tensor) => ranked("addmv", a, b, [2, 1]).matmul(b),
  addr: (a: Tensor, b: Tensor) => ranked("addr", a, b, [1, 1]).outer(b),
  baddbmm: (a: Tensor, b: Tensor) => ranked("baddbmm", a, b, [3, 3]).matmul(b),
  addbmm(a: Tensor, b: Tensor): Tensor {
    const [batch, rows, depth] = [a.shape[0] ?? 0, a.shape[1] ?? 0, a.shape[2] ?? 0];
    const left = ranked("addbmm", a, b, [3, 3]);
    if (b.size(0) !== batch || b.size(1) !== depth) {
      throw new HoldfastError(
        "BAD_SHAPE",
        `addbmm of ${formatShape(a.shape)} and ${formatShape(b.shape)}: b must be [${batch}, ${depth}, columns].`,
        { numbers: { op: "addbmm" } },
      );
    }
    const flat = left.permute([1, 0, 2]).reshape([rows, batch * depth]);
    return flat.matmul(b.reshape([batch * depth, b.size(2)]));
  },
};

function ranked(op: string, a: Tensor, b: Tensor, [ofA, ofB]: readonly [number, number]): Tensor {
  if (a.ndim === ofA && b.ndim === ofB) return a;
  throw new HoldfastError(
    "BAD_SHAPE",
    `${op} of ${formatShape(a.shape)} and ${formatShape(b.shape)}: the first must have ${ofA} axes and the second ${ofB}.`,
    { numbers: { op } },
  );
}

function weightedSum(op: string, x: Tensor, product: Tensor, { beta = 1, alpha = 1 }: SumFactors): Tensor {
  const { shape } = product;
  if (!isSameShape(broadcastShapes(op, [x.shape, shape]), shape)) {
    throw new HoldfastError(
      "BAD_SHAPE",
      `${op}: the tensor ${formatShape(x.shape)} does not broadcast to the product, ${formatShape(shape)}.`,
      { numbers: { op } },
    );
  }
  const scaled = alpha === 1 ? product : product.mul(alpha);
  if (beta === 0) return scaled;
  return scaled.add(beta === 1 ? x : x.mul(beta));
}
