/** Exponentials, logarithms, and the error, gamma and Bessel functions, as methods of tensors. */

import { checkOptions, HoldfastError } from "../../errors/index.js";
import { special } from "../../ops/index.js";
import type { Tensor } from "../tensor.js";
import type { Other } from "./arithmetic.js";

export const specialMethods = {
  /**
   * 2ˣ of each element.
   *
   * @example
   * ```ts
   * import { device, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * console.log(tensor([3, -1, 200]).exp2().tolist()); // → [ 8, 0.5, Infinity ]
   * cpu.close();
   * ```
   */
  exp2(this: Tensor): Tensor {
    return this.device.apply(special.exp2, [this]);
  },
  /**
   * The logarithm to base 2.
   *
   * @example
   * ```ts
   * import { device, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * console.log(tensor([8, 0, -1]).log2().tolist()); // → [ 3, -Infinity, NaN ]
   * cpu.close();
   * ```
   */
  log2(this: Tensor): Tensor {
    return this.device.apply(special.log2, [this]);
  },
  /**
   * The logarithm to base 10.
   *
   * @example
   * ```ts
   * import { device, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * console.log(tensor([1000, 0, -1]).log10().tolist()); // → [ 3, -Infinity, NaN ]
   * cpu.close();
   * ```
   */
  log10(this: Tensor): Tensor {
    return this.device.apply(special.log10, [this]);
  },
  /**
   * The complementary error function, 1 − erf x, with full precision where it is small.
   *
   * @example
   * ```ts
   * import { device, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * const x = tensor([5]);
   * console.log(x.erfc().item().toExponential(3), x.erf().neg().add(1).item()); // → 1.537e-12 0
   * cpu.close();
   * ```
   */
  erfc(this: Tensor): Tensor {
    return this.device.apply(special.erfc, [this]);
  },
  /**
   * The inverse of the error function; infinite at -1 and 1, and NaN outside.
   *
   * @example
   * ```ts
   * import { device, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * console.log(tensor([0, 1, 2]).erfinv().tolist()); // → [ 0, Infinity, NaN ]
   * cpu.close();
   * ```
   */
  erfinv(this: Tensor): Tensor {
    return this.device.apply(special.erfinv, [this]);
  },
  /**
   * The logarithm of the magnitude of the gamma function.
   *
   * @example
   * ```ts
   * import { device, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * console.log(tensor([1, 2, 5]).lgamma()); // → tensor([0.        0.        3.1780539], shape [3], f32, cpu)
   * cpu.close();
   * ```
   */
  lgamma(this: Tensor): Tensor {
    return this.device.apply(special.lgamma, [this]);
  },
  /**
   * The derivative of `lgamma`.
   *
   * @example
   * ```ts
   * import { device, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * console.log(tensor([1]).digamma().item().toFixed(4)); // → -0.5772
   * cpu.close();
   * ```
   */
  digamma(this: Tensor): Tensor {
    return this.device.apply(special.digamma, [this]);
  },
  /**
   * The logarithm of the multivariate gamma function of dimension p: a sum of p values of `lgamma`.
   *
   * @example
   * ```ts
   * import { device, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * console.log(tensor([3]).mvlgamma(2).item().toFixed(4)); // → 1.5502
   * cpu.close();
   * ```
   */
  mvlgamma(this: Tensor, p: number): Tensor {
    if (!Number.isInteger(p) || p < 1) {
      throw new HoldfastError("BAD_ARGUMENT", `mvlgamma of dimension ${p}; pass a whole number, 1 or more.`);
    }
    let sum = this.lgamma();
    for (let j = 1; j < p; j++) sum = sum.add(this.sub(j / 2).lgamma());
    return sum.add((p * (p - 1) * Math.log(Math.PI)) / 4);
  },
  /**
   * The modified Bessel function of the first kind, of order 0.
   *
   * @example
   * ```ts
   * import { device, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * console.log(tensor(1, { dtype: "f64" }).i0().item().toFixed(9)); // → 1.266065878
   * cpu.close();
   * ```
   */
  i0(this: Tensor): Tensor {
    return this.device.apply(special.i0, [this]);
  },
  /**
   * log(x / (1 − x)), the inverse of `sigmoid`. With `eps`, elements are clamped to [eps, 1 − eps] first.
   *
   * @example
   * ```ts
   * import { device, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * const x = tensor([0.5, 1]);
   * console.log(x.logit().tolist(), x.logit({ eps: 0.5 }).tolist()); // → [ 0, Infinity ] [ 0, 0 ]
   * cpu.close();
   * ```
   */
  logit(this: Tensor, options: { readonly eps?: number } = {}): Tensor {
    const { eps } = checkOptions("logit", options, { eps: true });
    return this.device.apply(special.logit, [this], eps === undefined ? {} : { eps });
  },
  /**
   * this · log(other), and 0 where this is 0.
   *
   * @example
   * ```ts
   * import { device, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * console.log(tensor([0, 2]).xlogy(tensor([0, 1])).tolist()); // → [ 0, 0 ]
   * cpu.close();
   * ```
   */
  xlogy(this: Tensor, other: Other): Tensor {
    return this.device.apply(special.xlogy, [this, other]);
  },
  /**
   * log(eˣ + eʸ) without overflow.
   *
   * @example
   * ```ts
   * import { device, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * console.log(tensor([1000, -Infinity]).logaddexp(1000)); // → tensor([1000.6932 1000.    ], shape [2], f32, cpu)
   * cpu.close();
   * ```
   */
  logaddexp(this: Tensor, other: Other): Tensor {
    return this.device.apply(special.logaddexp, [this, other]);
  },
  /**
   * log2(2ˣ + 2ʸ) without overflow.
   *
   * @example
   * ```ts
   * import { device, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * console.log(tensor([1000]).logaddexp2(1000).item()); // → 1001
   * cpu.close();
   * ```
   */
  logaddexp2(this: Tensor, other: Other): Tensor {
    return this.device.apply(special.logaddexp2, [this, other]);
  },
  /**
   * The power, computed in f64.
   *
   * @example
   * ```ts
   * import { device, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * const x = tensor([2, 3], { dtype: "i32" }).floatPower(-1);
   * console.log(x.tolist(), x.dtype); // → [ 0.5, 0.3333333333333333 ] f64
   * cpu.close();
   * ```
   */
  floatPower(this: Tensor, exponent: Other): Tensor {
    return this.to("f64").pow(typeof exponent === "number" ? exponent : exponent.to("f64"));
  },
  /**
   * this · 2^other.
   *
   * @example
   * ```ts
   * import { device, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * console.log(tensor([1, 3]).ldexp(tensor([4, -1])).tolist()); // → [ 16, 1.5 ]
   * cpu.close();
   * ```
   */
  ldexp(this: Tensor, other: Tensor): Tensor {
    return this.mul(other.exp2());
  },
};
