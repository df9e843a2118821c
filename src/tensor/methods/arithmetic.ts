/** Arithmetic as methods of tensors: elementwise, with a tensor that broadcasts or a number, and matrix products. */

import { checkOptions, HoldfastError, type OptionNames } from "../../errors/index.js";
import { dtypes } from "../../ir/index.js";
import { add, div, matmul, maximum, minimum, mul, pow, sub } from "../../ops/index.js";
import type { Tensor } from "../tensor.js";

/** The other operand: a tensor that broadcasts, or a number. */
export type Other = Tensor | number;

/** Options of `div`. */
export interface DivisionOptions {
  /** How the quotient is rounded: toward 0, or down. Default: not at all. */
  readonly roundingMode?: "trunc" | "floor";
}

const divisionOptionNames: OptionNames<DivisionOptions> = { roundingMode: true };

export const arithmeticMethods = {
  /**
   * The sum with a tensor or a number. Shapes broadcast: axes align from the last, and axes of size 1 repeat.
   *
   * @example
   * ```ts
   * import { device, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * const column = tensor([[10], [20]]);
   * console.log(column.add(tensor([1, 2, 3])).tolist()); // → [ [ 11, 12, 13 ], [ 21, 22, 23 ] ]
   * cpu.close();
   * ```
   */
  add(this: Tensor, other: Other): Tensor {
    return this.device.apply(add, [this, other]);
  },
  /**
   * The difference.
   *
   * @example
   * ```ts
   * import { device, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * const x = tensor([[1, 2], [3, 6]]);
   * console.log(x.sub(x.mean(1, { keepdim: true })).tolist()); // → [ [ -0.5, 0.5 ], [ -1.5, 1.5 ] ]
   * cpu.close();
   * ```
   */
  sub(this: Tensor, other: Other): Tensor {
    return this.device.apply(sub, [this, other]);
  },
  /**
   * The elementwise product; `matmul` is the matrix product. A number does not widen a float.
   *
   * @example
   * ```ts
   * import { device, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * const x = tensor([1, 2, 3], { dtype: "bf16" });
   * const y = x.mul(0.5);
   * console.log(y.tolist(), y.dtype); // → [ 0.5, 1, 1.5 ] bf16
   * cpu.close();
   * ```
   */
  mul(this: Tensor, other: Other): Tensor {
    return this.device.apply(mul, [this, other]);
  },
  /**
   * The quotient. Integers give floats; division by 0 gives an infinity, or NaN for 0 / 0. The option `roundingMode` rounds it, "trunc"
   * toward 0 and "floor" down; integers then stay integers.
   *
   * @example
   * ```ts
   * import { device, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * const x = tensor([3, 4, 0], { dtype: "i32" });
   * console.log(x.div(2).tolist(), x.div(0).tolist()); // → [ 1.5, 2, 0 ] [ Infinity, Infinity, NaN ]
   * console.log(x.div(-2, { roundingMode: "floor" }).tolist()); // → [ -2, -2, 0 ]
   * cpu.close();
   * ```
   */
  div(this: Tensor, other: Other, options: DivisionOptions = {}): Tensor {
    const { roundingMode } = checkOptions("div", options, divisionOptionNames);
    switch (roundingMode) {
      case undefined:
        return this.device.apply(div, [this, other]);
      case "floor":
        return this.floorDivide(other);
      case "trunc": {
        // A quotient in f64 would lose the last bits of large integers.
        const isFloat = [this, other].some((operand) =>
          typeof operand === "number" ? !Number.isInteger(operand) : dtypes[operand.dtype].kind === "float",
        );
        return isFloat ? this.div(other).trunc() : this.sub(this.fmod(other)).floorDivide(other);
      }
      default:
        throw new HoldfastError(
          "BAD_ARGUMENT",
          `div: roundingMode is ${String(roundingMode)}; pass "trunc" or "floor", or omit it.`,
        );
    }
  },
  /**
   * The power.
   *
   * @example
   * ```ts
   * import { device, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * const x = tensor([1, 4, 9]);
   * console.log(x.pow(0.5).tolist(), x.pow(tensor([3, 2, 0])).tolist()); // → [ 1, 2, 3 ] [ 1, 16, 1 ]
   * cpu.close();
   * ```
   */
  pow(this: Tensor, exponent: Other): Tensor {
    return this.device.apply(pow, [this, exponent]);
  },
  /**
   * The elementwise maximum; NaN if either is NaN.
   *
   * @example
   * ```ts
   * import { device, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * console.log(tensor([1, 5, NaN]).maximum(3).tolist()); // → [ 3, 5, NaN ]
   * cpu.close();
   * ```
   */
  maximum(this: Tensor, other: Other): Tensor {
    return this.device.apply(maximum, [this, other]);
  },
  /**
   * The elementwise minimum; NaN if either is NaN.
   *
   * @example
   * ```ts
   * import { device, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * console.log(tensor([[1, 5], [7, 2]]).minimum(tensor([4, 3])).tolist()); // → [ [ 1, 3 ], [ 4, 2 ] ]
   * cpu.close();
   * ```
   */
  minimum(this: Tensor, other: Other): Tensor {
    return this.device.apply(minimum, [this, other]);
  },
  /**
   * The matrix product of matrices, vectors, or batches of matrices, whose outer axes broadcast.
   *
   * @example
   * ```ts
   * import { device, ones, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * const a = tensor([[1, 2], [3, 4]]);
   * console.log(a.matmul(tensor([10, 1])).tolist()); // → [ 12, 34 ]
   * console.log(ones([5, 1, 2, 3]).matmul(ones([4, 3, 6])).shape); // → [ 5, 4, 2, 6 ]
   * cpu.close();
   * ```
   */
  matmul(this: Tensor, other: Tensor): Tensor {
    return this.device.apply(matmul, [this, other]);
  },
  /**
   * `matmul` of two matrices, by PyTorch's name.
   *
   * @example
   * ```ts
   * import { device, eye, ones } from "holdfast";
   * const cpu = await device("cpu");
   * console.log(ones([2, 3]).mm(eye(3)).shape); // → [ 2, 3 ]
   * cpu.close();
   * ```
   */
  mm(this: Tensor, other: Tensor): Tensor {
    return this.matmul(other);
  },
  /**
   * `matmul` of two batches of matrices, by PyTorch's name.
   *
   * @example
   * ```ts
   * import { device, ones } from "holdfast";
   * const cpu = await device("cpu");
   * console.log(ones([5, 2, 3]).bmm(ones([5, 3, 4])).shape); // → [ 5, 2, 4 ]
   * cpu.close();
   * ```
   */
  bmm(this: Tensor, other: Tensor): Tensor {
    return this.matmul(other);
  },
};
