/** Comparisons and logic as methods of tensors; all return booleans except `where`. */

import { checkOptions, type OptionNames } from "../../errors/index.js";
import { comparisons, isSameShape } from "../../ops/index.js";
import type { Tensor } from "../tensor.js";
import type { Other } from "./arithmetic.js";

/** Tolerances, as in PyTorch's `allclose`. */
export interface Closeness {
  /** Relative. Default: 1e-5. */
  readonly rtol?: number;
  /** Absolute. Default: 1e-8. */
  readonly atol?: number;
  /** Whether NaN is close to NaN. Default: false. */
  readonly equalNan?: boolean;
}

const closenesNames: OptionNames<Closeness> = { rtol: true, atol: true, equalNan: true };

export const comparisonMethods = {
  /**
   * True where both are equal. NaN equals nothing, itself included.
   *
   * @example
   * ```ts
   * import { device, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * console.log(tensor([1, 2, NaN]).eq(tensor([1, 3, NaN])).tolist()); // → [ true, false, false ]
   * cpu.close();
   * ```
   */
  eq(this: Tensor, other: Other): Tensor {
    return this.device.apply(comparisons.eq, [this, other]);
  },
  /**
   * True where they are not equal.
   *
   * @example
   * ```ts
   * import { device, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * const [predicted, label] = [tensor([0, 2, 1]), tensor([0, 1, 1])];
   * console.log(predicted.ne(label).sum().item()); // → 1
   * cpu.close();
   * ```
   */
  ne(this: Tensor, other: Other): Tensor {
    return this.device.apply(comparisons.ne, [this, other]);
  },
  /**
   * True where this is less than the other.
   *
   * @example
   * ```ts
   * import { device, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * console.log(tensor([1, 2, 3]).lt(tensor([3, 2, 1])).tolist()); // → [ true, false, false ]
   * cpu.close();
   * ```
   */
  lt(this: Tensor, other: Other): Tensor {
    return this.device.apply(comparisons.lt, [this, other]);
  },
  /**
   * True where this is less than the other or equal to it.
   *
   * @example
   * ```ts
   * import { device, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * console.log(tensor([1, 2, 3]).le(2).tolist()); // → [ true, true, false ]
   * cpu.close();
   * ```
   */
  le(this: Tensor, other: Other): Tensor {
    return this.device.apply(comparisons.le, [this, other]);
  },
  /**
   * True where this is greater than the other.
   *
   * @example
   * ```ts
   * import { device, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * const isAbove = tensor([-1, 0, 2]).gt(0);
   * console.log(isAbove.tolist(), isAbove.sum().item()); // → [ false, false, true ] 1
   * cpu.close();
   * ```
   */
  gt(this: Tensor, other: Other): Tensor {
    return this.device.apply(comparisons.gt, [this, other]);
  },
  /**
   * True where this is greater than the other or equal to it.
   *
   * @example
   * ```ts
   * import { arange, device } from "holdfast";
   * const cpu = await device("cpu");
   * const index = arange(3);
   * console.log(index.reshape([3, 1]).ge(index).to("i32").tolist()); // → [ [ 1, 0, 0 ], [ 1, 1, 0 ], [ 1, 1, 1 ] ]
   * cpu.close();
   * ```
   */
  ge(this: Tensor, other: Other): Tensor {
    return this.device.apply(comparisons.ge, [this, other]);
  },
  /**
   * True where both are not 0.
   *
   * @example
   * ```ts
   * import { device, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * const x = tensor([-2, 0.5, 3]);
   * console.log(x.gt(0).logicalAnd(x.lt(1)).tolist()); // → [ false, true, false ]
   * cpu.close();
   * ```
   */
  logicalAnd(this: Tensor, other: Other): Tensor {
    return this.device.apply(comparisons.logicalAnd, [this, other]);
  },
  /**
   * True where at least one is not 0.
   *
   * @example
   * ```ts
   * import { device, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * const x = tensor([-2, 0.5, 3]);
   * console.log(x.lt(0).logicalOr(x.gt(1)).tolist()); // → [ true, false, true ]
   * cpu.close();
   * ```
   */
  logicalOr(this: Tensor, other: Other): Tensor {
    return this.device.apply(comparisons.logicalOr, [this, other]);
  },
  /**
   * True where exactly one is not 0.
   *
   * @example
   * ```ts
   * import { device, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * console.log(tensor([true, true, false]).logicalXor(tensor([true, false, false])).tolist());
   * // → [ false, true, false ]
   * cpu.close();
   * ```
   */
  logicalXor(this: Tensor, other: Other): Tensor {
    return this.device.apply(comparisons.logicalXor, [this, other]);
  },
  /**
   * True where this is 0.
   *
   * @example
   * ```ts
   * import { device, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * console.log(tensor([0, 2, -1]).logicalNot().tolist()); // → [ true, false, false ]
   * cpu.close();
   * ```
   */
  logicalNot(this: Tensor): Tensor {
    return this.device.apply(comparisons.logicalNot, [this]);
  },
  /**
   * True where this is NaN.
   *
   * @example
   * ```ts
   * import { device, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * console.log(tensor([0, 1]).div(0).isnan().tolist()); // → [ true, false ]
   * cpu.close();
   * ```
   */
  isnan(this: Tensor): Tensor {
    return this.device.apply(comparisons.isnan, [this]);
  },
  /**
   * True where this is neither infinite nor NaN.
   *
   * @example
   * ```ts
   * import { device, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * const x = tensor([1, Infinity, NaN]);
   * console.log(x.isfinite().tolist(), x.isfinite().all().item()); // → [ true, false, false ] 0
   * cpu.close();
   * ```
   */
  isfinite(this: Tensor): Tensor {
    return this.device.apply(comparisons.isfinite, [this]);
  },
  /**
   * True where this is infinite, with either sign.
   *
   * @example
   * ```ts
   * import { device, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * console.log(tensor([1, -Infinity, NaN]).isinf().tolist()); // → [ false, true, false ]
   * cpu.close();
   * ```
   */
  isinf(this: Tensor): Tensor {
    return this.abs().eq(Number.POSITIVE_INFINITY);
  },
  /**
   * True if both have the same shape and the same elements. Reads one number back.
   *
   * @example
   * ```ts
   * import { device, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * const x = tensor([1, 2]);
   * console.log(x.equal(tensor([1, 2])), x.equal(tensor([[1, 2]]))); // → true false
   * cpu.close();
   * ```
   */
  equal(this: Tensor, other: Tensor): boolean {
    return isSameShape(this.shape, other.shape) && this.eq(other).all().item() === 1;
  },
  /**
   * True if every element is within `atol + rtol · |other|` of the element of the other. Reads one number back.
   *
   * @example
   * ```ts
   * import { device, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * const x = tensor([1, 2]);
   * console.log(x.allclose(x.add(1e-7)), x.allclose(x.add(0.1))); // → true false
   * cpu.close();
   * ```
   */
  allclose(this: Tensor, other: Tensor, closeness: Closeness = {}): boolean {
    checkOptions("allclose", closeness, closenesNames);
    return this.isclose(other, closeness).all().item() === 1;
  },
  /**
   * True where both are within `atol + rtol · |other|` of each other. Equal infinities are close; NaN is close to NaN with `equalNan`.
   *
   * @example
   * ```ts
   * import { device, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * const x = tensor([1, 2, NaN]);
   * console.log(x.isclose(tensor([1, 2.1, NaN])).tolist()); // → [ true, false, false ]
   * console.log(x.isclose(x, { equalNan: true }).tolist()); // → [ true, true, true ]
   * cpu.close();
   * ```
   */
  isclose(this: Tensor, other: Tensor, options: Closeness = {}): Tensor {
    const { rtol = 1e-5, atol = 1e-8, equalNan = false } = checkOptions("isclose", options, closenesNames);
    const distance = this.sub(other).abs();
    const isNear = distance.le(other.abs().mul(rtol).add(atol)).logicalAnd(distance.isfinite());
    // Infinities of one sign are equal, although their difference is NaN.
    const isClose = isNear.logicalOr(this.eq(other));
    return equalNan ? isClose.logicalOr(this.isnan().logicalAnd(other.isnan())) : isClose;
  },
  /**
   * The elements of this tensor where the condition is true, and of the other elsewhere.
   *
   * @example
   * ```ts
   * import { device, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * const x = tensor([-4, 9]);
   * console.log(x.sqrt().where(x.gt(0), 0).tolist()); // → [ 0, 3 ]
   * cpu.close();
   * ```
   */
  where(this: Tensor, condition: Tensor, other: Other): Tensor {
    return this.device.apply(comparisons.where, [condition, this, other]);
  },
};
