/** Rounding, remainders and common divisors as methods of tensors. */

import { checkOptions } from "../../errors/index.js";
import { divisors, rounding } from "../../ops/index.js";
import type { Tensor } from "../tensor.js";
import type { Other } from "./arithmetic.js";

export const roundingMethods = {
  /**
   * Rounds to the nearest whole number, halves to even, or to a number of decimals.
   *
   * @example
   * ```ts
   * import { device, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * console.log(tensor([0.5, 1.5, -2.7]).round().tolist()); // → [ 0, 2, -3 ]
   * console.log(tensor([1234.567], { dtype: "f64" }).round({ decimals: 2 }).item()); // → 1234.57
   * cpu.close();
   * ```
   */
  round(this: Tensor, options: { readonly decimals?: number } = {}): Tensor {
    const { decimals = 0 } = checkOptions("round", options, { decimals: true });
    if (decimals === 0) return this.device.apply(rounding.round, [this]);
    const scale = 10 ** Math.abs(decimals);
    return decimals > 0 ? this.mul(scale).round().div(scale) : this.div(scale).round().mul(scale);
  },
  /**
   * Rounds toward 0.
   *
   * @example
   * ```ts
   * import { device, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * console.log(tensor([1.7, -1.7]).trunc().tolist()); // → [ 1, -1 ]
   * cpu.close();
   * ```
   */
  trunc(this: Tensor): Tensor {
    return this.device.apply(rounding.trunc, [this]);
  },
  /**
   * The part after the point, with the sign of the element.
   *
   * @example
   * ```ts
   * import { device, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * console.log(tensor([1.75, -1.25]).frac().tolist()); // → [ 0.75, -0.25 ]
   * cpu.close();
   * ```
   */
  frac(this: Tensor): Tensor {
    return this.device.apply(rounding.frac, [this]);
  },
  /**
   * The remainder of a division that rounds down. It has the sign of the divisor, like Python's `%`. An integer modulo 0 is the integer.
   *
   * @example
   * ```ts
   * import { device, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * const x = tensor([-3, -1, 4]);
   * console.log(x.remainder(3).tolist(), x.fmod(3).tolist()); // → [ -0, 2, 1 ] [ -0, -1, 1 ]
   * cpu.close();
   * ```
   */
  remainder(this: Tensor, other: Other): Tensor {
    return this.device.apply(rounding.remainder, [this, other]);
  },
  /**
   * The remainder of a division that rounds toward 0. It has the sign of the dividend, like JavaScript's `%`.
   *
   * @example
   * ```ts
   * import { device, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * console.log(tensor([-5, 5.5]).fmod(2).tolist()); // → [ -1, 1.5 ]
   * cpu.close();
   * ```
   */
  fmod(this: Tensor, other: Other): Tensor {
    return this.device.apply(rounding.fmod, [this, other]);
  },
  /**
   * The quotient, rounded down. Integers stay integers; an integer divided by 0 gives the nearest i32.
   *
   * @example
   * ```ts
   * import { device, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * const x = tensor([7, -7], { dtype: "i32" });
   * console.log(x.floorDivide(2).tolist(), x.floorDivide(2).dtype); // → [ 3, -4 ] i32
   * cpu.close();
   * ```
   */
  floorDivide(this: Tensor, other: Other): Tensor {
    return this.device.apply(rounding.floorDivide, [this, other]);
  },
  /**
   * The greatest common divisor of integers.
   *
   * @example
   * ```ts
   * import { device, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * console.log(tensor([12, -18, 0], { dtype: "i32" }).gcd(8).tolist()); // → [ 4, 2, 8 ]
   * cpu.close();
   * ```
   */
  gcd(this: Tensor, other: Other): Tensor {
    return this.device.apply(divisors.gcd, [this, other]);
  },
  /**
   * The least common multiple of integers.
   *
   * @example
   * ```ts
   * import { device, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * console.log(tensor([12, -18, 0], { dtype: "i32" }).lcm(8).tolist()); // → [ 24, 72, 0 ]
   * cpu.close();
   * ```
   */
  lcm(this: Tensor, other: Other): Tensor {
    return this.device.apply(divisors.lcm, [this, other]);
  },
};
