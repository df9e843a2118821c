/** Elementwise functions as methods of tensors. */

import { HoldfastError } from "../../errors/index.js";
import { functions } from "../../ops/index.js";
import { where } from "../functions.js";
import type { Tensor } from "../tensor.js";

export const functionMethods = {
  /**
   * The negative of each element.
   *
   * @example
   * ```ts
   * import { device, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * console.log(tensor([1, -2]).neg().tolist()); // → [ -1, 2 ]
   * cpu.close();
   * ```
   */
  neg(this: Tensor): Tensor {
    return this.device.apply(functions.neg, [this]);
  },
  /**
   * The magnitude of each element.
   *
   * @example
   * ```ts
   * import { device, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * console.log(tensor([-3, 0, 2]).abs().tolist()); // → [ 3, 0, 2 ]
   * cpu.close();
   * ```
   */
  abs(this: Tensor): Tensor {
    return this.device.apply(functions.abs, [this]);
  },
  /**
   * -1, 0 or 1 for each element.
   *
   * @example
   * ```ts
   * import { device, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * console.log(tensor([-2.5, 0, 7]).sign().tolist()); // → [ -1, 0, 1 ]
   * cpu.close();
   * ```
   */
  sign(this: Tensor): Tensor {
    return this.device.apply(functions.sign, [this]);
  },
  /**
   * The largest whole number that is not above the element.
   *
   * @example
   * ```ts
   * import { device, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * console.log(tensor([1.7, -1.2]).floor().tolist()); // → [ 1, -2 ]
   * cpu.close();
   * ```
   */
  floor(this: Tensor): Tensor {
    return this.device.apply(functions.floor, [this]);
  },
  /**
   * The smallest whole number that is not below the element.
   *
   * @example
   * ```ts
   * import { device, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * console.log(tensor([1.2, -1.7]).ceil().tolist()); // → [ 2, -1 ]
   * cpu.close();
   * ```
   */
  ceil(this: Tensor): Tensor {
    return this.device.apply(functions.ceil, [this]);
  },
  /**
   * eˣ of each element. It overflows to Infinity; `softmax` and `logsumexp` avoid that.
   *
   * @example
   * ```ts
   * import { device, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * console.log(tensor([0, 1, 100]).exp()); // → tensor([1.        2.7182817  Infinity], shape [3], f32, cpu)
   * cpu.close();
   * ```
   */
  exp(this: Tensor): Tensor {
    return this.device.apply(functions.exp, [this]);
  },
  /**
   * eˣ − 1, with full precision near 0.
   *
   * @example
   * ```ts
   * import { device, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * const x = tensor([1e-8]);
   * console.log(x.expm1().item().toExponential(3), x.exp().sub(1).item()); // → 1.000e-8 0
   * cpu.close();
   * ```
   */
  expm1(this: Tensor): Tensor {
    return this.device.apply(functions.expm1, [this]);
  },
  /**
   * The natural logarithm: −Infinity for 0, and NaN for negative elements.
   *
   * @example
   * ```ts
   * import { device, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * console.log(tensor([1, 0, -1]).log().tolist()); // → [ 0, -Infinity, NaN ]
   * cpu.close();
   * ```
   */
  log(this: Tensor): Tensor {
    return this.device.apply(functions.log, [this]);
  },
  /**
   * log(1 + x), with full precision near 0.
   *
   * @example
   * ```ts
   * import { device, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * const x = tensor([1e-8]);
   * console.log(x.log1p().item().toExponential(3), x.add(1).log().item()); // → 1.000e-8 0
   * cpu.close();
   * ```
   */
  log1p(this: Tensor): Tensor {
    return this.device.apply(functions.log1p, [this]);
  },
  /**
   * The square root: NaN for negative elements.
   *
   * @example
   * ```ts
   * import { device, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * console.log(tensor([9, 2, -1]).sqrt()); // → tensor([3.        1.4142135       NaN], shape [3], f32, cpu)
   * cpu.close();
   * ```
   */
  sqrt(this: Tensor): Tensor {
    return this.device.apply(functions.sqrt, [this]);
  },
  /**
   * 1/√x of each element.
   *
   * @example
   * ```ts
   * import { device, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * const x = tensor([3, 4]);
   * console.log(x.mul(x.square().sum().rsqrt())); // → tensor([0.6 0.8], shape [2], f32, cpu)
   * cpu.close();
   * ```
   */
  rsqrt(this: Tensor): Tensor {
    return this.device.apply(functions.rsqrt, [this]);
  },
  /**
   * x² of each element.
   *
   * @example
   * ```ts
   * import { device, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * const x = tensor([3, -2], { requiresGrad: true });
   * x.square().sum().backward();
   * console.log(x.square().tolist(), x.grad?.tolist()); // → [ 9, 4 ] [ 6, -4 ]
   * cpu.close();
   * ```
   */
  square(this: Tensor): Tensor {
    return this.device.apply(functions.square, [this]);
  },
  /**
   * 1/x of each element.
   *
   * @example
   * ```ts
   * import { device, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * console.log(tensor([2, -4, 0]).reciprocal().tolist()); // → [ 0.5, -0.25, Infinity ]
   * cpu.close();
   * ```
   */
  reciprocal(this: Tensor): Tensor {
    return this.device.apply(functions.reciprocal, [this]);
  },
  /**
   * The sine; elements are in radians.
   *
   * @example
   * ```ts
   * import { device, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * console.log(tensor([0, Math.PI / 2]).sin().tolist()); // → [ 0, 1 ]
   * cpu.close();
   * ```
   */
  sin(this: Tensor): Tensor {
    return this.device.apply(functions.sin, [this]);
  },
  /**
   * The cosine; elements are in radians.
   *
   * @example
   * ```ts
   * import { device, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * console.log(tensor([0, Math.PI]).cos().tolist()); // → [ 1, -1 ]
   * cpu.close();
   * ```
   */
  cos(this: Tensor): Tensor {
    return this.device.apply(functions.cos, [this]);
  },
  /**
   * The error function.
   *
   * @example
   * ```ts
   * import { device, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * console.log(tensor([-10, 0, 1]).erf()); // → tensor([-1.         0.         0.8427008], shape [3], f32, cpu)
   * cpu.close();
   * ```
   */
  erf(this: Tensor): Tensor {
    return this.device.apply(functions.erf, [this]);
  },
  /**
   * Clamps to two bounds: numbers, or tensors that broadcast. Either may be null or omitted. Elements outside get no gradient.
   *
   * @example
   * ```ts
   * import { device, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * const x = tensor([-2, 0.5, 3]);
   * console.log(x.clamp(0, 1).tolist(), x.clamp(undefined, 1).tolist()); // → [ 0, 0.5, 1 ] [ -2, 0.5, 1 ]
   * cpu.close();
   * ```
   */
  clamp(this: Tensor, min?: Bound, max?: Bound): Tensor {
    const numbers = numbersOf("clamp", min, max);
    if (numbers) return this.device.apply(functions.clamp, [this], numbers);
    const raised = isBound(min) ? where(this.lt(min), min, this) : this;
    return isBound(max) ? where(raised.gt(max), max, raised) : raised;
  },
};

/** A bound of `clamp`: a number, a tensor that broadcasts, or none. */
export type Bound = Tensor | number | null | undefined;

function isBound(bound: Bound): bound is Tensor | number {
  return bound !== null && bound !== undefined;
}

/** The bounds of the op if all are numbers; undefined if one is a tensor. */
export function numbersOf(name: string, min: Bound, max: Bound): { min?: number; max?: number } | undefined {
  for (const bound of [min, max]) {
    if (isBound(bound) && typeof bound === "object" && "dtype" in bound) return undefined;
    if (isBound(bound) && typeof bound !== "number") {
      throw new HoldfastError(
        "BAD_ARGUMENT",
        `${name}: a bound is ${typeof bound}. Pass numbers, tensors, or null for no bound: x.clamp(0, 1).`,
      );
    }
  }
  return { ...(typeof min === "number" && { min }), ...(typeof max === "number" && { max }) };
}
