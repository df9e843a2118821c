/** Bitwise ops as methods of tensors of integers and booleans. */

import { bitwise } from "../../ops/index.js";
import type { Tensor } from "../tensor.js";
import type { Other } from "./arithmetic.js";

export const bitwiseMethods = {
  /**
   * The common bits of two integers; of booleans, the conjunction.
   *
   * @example
   * ```ts
   * import { device, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * console.log(tensor([12, 10], { dtype: "i32" }).bitwiseAnd(6).tolist()); // → [ 4, 2 ]
   * cpu.close();
   * ```
   */
  bitwiseAnd(this: Tensor, other: Other): Tensor {
    return this.device.apply(bitwise.bitwiseAnd, [this, other]);
  },
  /**
   * The bits of either integer; of booleans, the disjunction.
   *
   * @example
   * ```ts
   * import { device, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * console.log(tensor([12, 10], { dtype: "i32" }).bitwiseOr(6).tolist()); // → [ 14, 14 ]
   * cpu.close();
   * ```
   */
  bitwiseOr(this: Tensor, other: Other): Tensor {
    return this.device.apply(bitwise.bitwiseOr, [this, other]);
  },
  /**
   * The bits of exactly one integer.
   *
   * @example
   * ```ts
   * import { device, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * console.log(tensor([12, 10], { dtype: "i32" }).bitwiseXor(6).tolist()); // → [ 10, 12 ]
   * cpu.close();
   * ```
   */
  bitwiseXor(this: Tensor, other: Other): Tensor {
    return this.device.apply(bitwise.bitwiseXor, [this, other]);
  },
  /**
   * The complement of each integer, −1 − x; of booleans, the negation.
   *
   * @example
   * ```ts
   * import { device, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * console.log(tensor([0, 5], { dtype: "i32" }).bitwiseNot().tolist()); // → [ -1, -6 ]
   * cpu.close();
   * ```
   */
  bitwiseNot(this: Tensor): Tensor {
    if (this.dtype === "bool") return this.logicalNot();
    return this.device.apply(bitwise.bitwiseNot, [this]);
  },
  /**
   * Shifts the bits of integers to the left. A count is taken modulo 32.
   *
   * @example
   * ```ts
   * import { device, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * console.log(tensor([1, 3], { dtype: "i32" }).bitwiseLeftShift(4).tolist()); // → [ 16, 48 ]
   * cpu.close();
   * ```
   */
  bitwiseLeftShift(this: Tensor, other: Other): Tensor {
    return this.device.apply(bitwise.bitwiseLeftShift, [this, other]);
  },
  /**
   * Shifts the bits of integers to the right, with copies of the sign. A count is taken modulo 32.
   *
   * @example
   * ```ts
   * import { device, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * console.log(tensor([48, -48], { dtype: "i32" }).bitwiseRightShift(4).tolist()); // → [ 3, -3 ]
   * cpu.close();
   * ```
   */
  bitwiseRightShift(this: Tensor, other: Other): Tensor {
    return this.device.apply(bitwise.bitwiseRightShift, [this, other]);
  },
};
