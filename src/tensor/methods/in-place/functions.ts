/** Elementwise functions in place: the result overwrites the tensor, at the same address. */

import { functions } from "../../../ops/index.js";
import type { Tensor } from "../../tensor.js";
import { type Bound, numbersOf } from "../functions.js";

export const inPlaceFunctionMethods = {
  /**
   * Changes the sign of every element, in place.
   *
   * @example
   * ```ts
   * import { device, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * console.log(tensor([1, -2]).neg_().tolist()); // → [ -1, 2 ]
   * cpu.close();
   * ```
   */
  neg_(this: Tensor): Tensor {
    return this.device.applyInPlace(functions.neg, this, [this]);
  },
  /**
   * Absolute values in place.
   *
   * @example
   * ```ts
   * import { device, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * const x = tensor([-1, 2]);
   * console.log(x.abs_() === x, x.tolist()); // → true [ 1, 2 ]
   * cpu.close();
   * ```
   */
  abs_(this: Tensor): Tensor {
    return this.device.applyInPlace(functions.abs, this, [this]);
  },
  /**
   * -1, 0 or 1 for each element, in place.
   *
   * @example
   * ```ts
   * import { device, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * console.log(tensor([-0.5, 0, 9]).sign_().tolist()); // → [ -1, 0, 1 ]
   * cpu.close();
   * ```
   */
  sign_(this: Tensor): Tensor {
    return this.device.applyInPlace(functions.sign, this, [this]);
  },
  /**
   * Rounds down in place.
   *
   * @example
   * ```ts
   * import { device, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * console.log(tensor([2.5, -2.5]).floor_().tolist()); // → [ 2, -3 ]
   * cpu.close();
   * ```
   */
  floor_(this: Tensor): Tensor {
    return this.device.applyInPlace(functions.floor, this, [this]);
  },
  /**
   * Rounds up in place.
   *
   * @example
   * ```ts
   * import { device, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * console.log(tensor([2.5, -2.5]).ceil_().tolist()); // → [ 3, -2 ]
   * cpu.close();
   * ```
   */
  ceil_(this: Tensor): Tensor {
    return this.device.applyInPlace(functions.ceil, this, [this]);
  },
  /**
   * eˣ in place.
   *
   * @example
   * ```ts
   * import { device, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * console.log(tensor([0, -Infinity]).exp_().tolist()); // → [ 1, 0 ]
   * cpu.close();
   * ```
   */
  exp_(this: Tensor): Tensor {
    return this.device.applyInPlace(functions.exp, this, [this]);
  },
  /**
   * eˣ − 1 in place, with full precision near 0.
   *
   * @example
   * ```ts
   * import { device, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * console.log(tensor([1e-7]).expm1_().item().toExponential(3)); // → 1.000e-7
   * cpu.close();
   * ```
   */
  expm1_(this: Tensor): Tensor {
    return this.device.applyInPlace(functions.expm1, this, [this]);
  },
  /**
   * The natural logarithm in place.
   *
   * @example
   * ```ts
   * import { device, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * console.log(tensor([1, 0]).log_().tolist()); // → [ 0, -Infinity ]
   * cpu.close();
   * ```
   */
  log_(this: Tensor): Tensor {
    return this.device.applyInPlace(functions.log, this, [this]);
  },
  /**
   * log(1 + x) in place, with full precision near 0.
   *
   * @example
   * ```ts
   * import { device, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * console.log(tensor([1e-7]).log1p_().item().toExponential(3)); // → 1.000e-7
   * cpu.close();
   * ```
   */
  log1p_(this: Tensor): Tensor {
    return this.device.applyInPlace(functions.log1p, this, [this]);
  },
  /**
   * The square root in place.
   *
   * @example
   * ```ts
   * import { device, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * console.log(tensor([4, 9]).sqrt_().tolist()); // → [ 2, 3 ]
   * cpu.close();
   * ```
   */
  sqrt_(this: Tensor): Tensor {
    return this.device.applyInPlace(functions.sqrt, this, [this]);
  },
  /**
   * 1/√x in place.
   *
   * @example
   * ```ts
   * import { device, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * console.log(tensor([4, 16]).rsqrt_().tolist()); // → [ 0.5, 0.25 ]
   * cpu.close();
   * ```
   */
  rsqrt_(this: Tensor): Tensor {
    return this.device.applyInPlace(functions.rsqrt, this, [this]);
  },
  /**
   * x² in place.
   *
   * @example
   * ```ts
   * import { device, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * console.log(tensor([-3, 4]).square_().tolist()); // → [ 9, 16 ]
   * cpu.close();
   * ```
   */
  square_(this: Tensor): Tensor {
    return this.device.applyInPlace(functions.square, this, [this]);
  },
  /**
   * 1/x in place.
   *
   * @example
   * ```ts
   * import { device, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * console.log(tensor([2, 4]).reciprocal_().tolist()); // → [ 0.5, 0.25 ]
   * cpu.close();
   * ```
   */
  reciprocal_(this: Tensor): Tensor {
    return this.device.applyInPlace(functions.reciprocal, this, [this]);
  },
  /**
   * The sine in place.
   *
   * @example
   * ```ts
   * import { device, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * console.log(tensor([0, Math.PI / 6]).sin_()); // → tensor([0.  0.5], shape [2], f32, cpu)
   * cpu.close();
   * ```
   */
  sin_(this: Tensor): Tensor {
    return this.device.applyInPlace(functions.sin, this, [this]);
  },
  /**
   * The cosine in place.
   *
   * @example
   * ```ts
   * import { device, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * console.log(tensor([0, Math.PI]).cos_().sum().item()); // → 0
   * cpu.close();
   * ```
   */
  cos_(this: Tensor): Tensor {
    return this.device.applyInPlace(functions.cos, this, [this]);
  },
  /**
   * The error function in place.
   *
   * @example
   * ```ts
   * import { device, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * console.log(tensor([0, 0.5]).erf_()); // → tensor([0.        0.5204999], shape [2], f32, cpu)
   * cpu.close();
   * ```
   */
  erf_(this: Tensor): Tensor {
    return this.device.applyInPlace(functions.erf, this, [this]);
  },
  /**
   * `clamp` in place.
   *
   * @example
   * ```ts
   * import { device, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * console.log(tensor([-5, 0.5, 5]).clamp_(-1, 1).tolist()); // → [ -1, 0.5, 1 ]
   * cpu.close();
   * ```
   */
  clamp_(this: Tensor, min?: Bound, max?: Bound): Tensor {
    const numbers = numbersOf("clamp_", min, max);
    if (!numbers) return this.copy_(this.clamp(min, max));
    return this.device.applyInPlace(functions.clamp, this, [this], numbers);
  },
};
