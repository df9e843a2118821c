/** Signs, maxima without NaN, interpolation and replacements, as methods of tensors. */

import { checkOptions } from "../../errors/index.js";
import type { Dtype } from "../../ir/index.js";
import { selections } from "../../ops/index.js";
import type { Tensor } from "../tensor.js";
import type { Other } from "./arithmetic.js";

/** The numbers that `nanToNum` writes. */
export interface NanReplacements {
  /** For NaN. Default: 0. */
  readonly nan?: number;
  /** For Infinity. Default: the largest number of the dtype. */
  readonly posinf?: number;
  /** For −Infinity. Default: the smallest number of the dtype. */
  readonly neginf?: number;
}

const largest: Partial<Record<Dtype, number>> = {
  f32: (2 - 2 ** -23) * 2 ** 127,
  f64: Number.MAX_VALUE,
  bf16: (2 - 2 ** -7) * 2 ** 127,
  f16: 65_504,
};

export const selectionMethods = {
  /**
   * The magnitude of this with the sign of the other.
   *
   * @example
   * ```ts
   * import { device, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * console.log(tensor([1, -2]).copysign(tensor([-0, 3])).tolist()); // → [ -1, 2 ]
   * cpu.close();
   * ```
   */
  copysign(this: Tensor, other: Other): Tensor {
    return this.device.apply(selections.copysign, [this, other]);
  },
  /**
   * True where the element is negative, or −0.
   *
   * @example
   * ```ts
   * import { device, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * console.log(tensor([-1, -0, 0]).signbit().tolist()); // → [ true, true, false ]
   * cpu.close();
   * ```
   */
  signbit(this: Tensor): Tensor {
    return this.device.apply(selections.signbit, [this]);
  },
  /**
   * The unit step: 0 below 0 and for NaN, 1 above, and the element of `values` at 0.
   *
   * @example
   * ```ts
   * import { device, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * console.log(tensor([-2, 0, 2]).heaviside(0.5).tolist()); // → [ 0, 0.5, 1 ]
   * cpu.close();
   * ```
   */
  heaviside(this: Tensor, values: Other): Tensor {
    return this.device.apply(selections.heaviside, [this, values]);
  },
  /**
   * The elementwise maximum. Unlike `maximum`, it is NaN only if both are NaN.
   *
   * @example
   * ```ts
   * import { device, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * console.log(tensor([1, NaN]).fmax(0.5).tolist()); // → [ 1, 0.5 ]
   * cpu.close();
   * ```
   */
  fmax(this: Tensor, other: Other): Tensor {
    return this.device.apply(selections.fmax, [this, other]);
  },
  /**
   * The elementwise minimum. Unlike `minimum`, it is NaN only if both are NaN.
   *
   * @example
   * ```ts
   * import { device, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * console.log(tensor([1, NaN]).fmin(0.5).tolist()); // → [ 0.5, 0.5 ]
   * cpu.close();
   * ```
   */
  fmin(this: Tensor, other: Other): Tensor {
    return this.device.apply(selections.fmin, [this, other]);
  },
  /**
   * Linear interpolation: this + weight · (end − this).
   *
   * @example
   * ```ts
   * import { device, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * console.log(tensor([0, 10]).lerp(tensor([4, 20]), 0.25).tolist()); // → [ 1, 12.5 ]
   * cpu.close();
   * ```
   */
  lerp(this: Tensor, end: Tensor, weight: Other): Tensor {
    return this.device.apply(selections.lerp, [this, end, weight]);
  },
  /**
   * this + value · a · b.
   *
   * @example
   * ```ts
   * import { device, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * console.log(tensor([1, 1]).addcmul(tensor([2, 3]), tensor([4, 5]), { value: 0.5 }).tolist()); // → [ 5, 8.5 ]
   * cpu.close();
   * ```
   */
  addcmul(this: Tensor, a: Tensor, b: Tensor, options: { readonly value?: number } = {}): Tensor {
    const { value = 1 } = checkOptions("addcmul", options, { value: true });
    return this.device.apply(selections.addcmul, [this, a, b], { value });
  },
  /**
   * this + value · a / b.
   *
   * @example
   * ```ts
   * import { device, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * console.log(tensor([1, 1]).addcdiv(tensor([2, 3]), tensor([4, 6]), { value: 2 }).tolist()); // → [ 2, 2 ]
   * cpu.close();
   * ```
   */
  addcdiv(this: Tensor, a: Tensor, b: Tensor, options: { readonly value?: number } = {}): Tensor {
    const { value = 1 } = checkOptions("addcdiv", options, { value: true });
    return this.device.apply(selections.addcdiv, [this, a, b], { value });
  },
  /**
   * Replaces NaN, Infinity and −Infinity. Defaults: 0, and the largest and smallest number of the dtype.
   *
   * @example
   * ```ts
   * import { device, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * console.log(tensor([NaN, -Infinity, 2]).nanToNum({ neginf: -1 }).tolist()); // → [ 0, -1, 2 ]
   * cpu.close();
   * ```
   */
  nanToNum(this: Tensor, options: NanReplacements = {}): Tensor {
    const {
      nan = 0,
      posinf,
      neginf,
    } = checkOptions("nanToNum", options, { nan: true, posinf: true, neginf: true });
    const limit = largest[this.dtype] ?? 0;
    return this.device.apply(selections.nanToNum, [this], {
      ...{ nan, posinf: posinf ?? limit, neginf: neginf ?? -limit },
    });
  },
  /**
   * Replaces smaller elements by a bound.
   *
   * @example
   * ```ts
   * import { device, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * console.log(tensor([-2, 3]).clampMin(0).tolist()); // → [ 0, 3 ]
   * cpu.close();
   * ```
   */
  clampMin(this: Tensor, min: Other): Tensor {
    return this.clamp(min);
  },
  /**
   * Replaces larger elements by a bound.
   *
   * @example
   * ```ts
   * import { device, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * console.log(tensor([-2, 3]).clampMax(0).tolist()); // → [ -2, 0 ]
   * cpu.close();
   * ```
   */
  clampMax(this: Tensor, max: Other): Tensor {
    return this.clamp(undefined, max);
  },
  /**
   * True where this is Infinity.
   *
   * @example
   * ```ts
   * import { device, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * console.log(tensor([Infinity, -Infinity, 1]).isposinf().tolist()); // → [ true, false, false ]
   * cpu.close();
   * ```
   */
  isposinf(this: Tensor): Tensor {
    return this.eq(Number.POSITIVE_INFINITY);
  },
  /**
   * True where this is −Infinity.
   *
   * @example
   * ```ts
   * import { device, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * console.log(tensor([Infinity, -Infinity, 1]).isneginf().tolist()); // → [ false, true, false ]
   * cpu.close();
   * ```
   */
  isneginf(this: Tensor): Tensor {
    return this.eq(Number.NEGATIVE_INFINITY);
  },
  /**
   * The tensor itself, as `+x` in Python.
   *
   * @example
   * ```ts
   * import { device, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * const x = tensor([-1]);
   * console.log(x.positive() === x); // → true
   * cpu.close();
   * ```
   */
  positive(this: Tensor): Tensor {
    return this;
  },
};
