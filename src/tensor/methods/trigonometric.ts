/** Trigonometric and hyperbolic functions, and angles, as methods of tensors. */

import { trigonometric } from "../../ops/index.js";
import type { Tensor } from "../tensor.js";
import type { Other } from "./arithmetic.js";

export const trigonometricMethods = {
  /**
   * The tangent; elements are in radians.
   *
   * @example
   * ```ts
   * import { device, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * console.log(tensor([0, Math.PI / 4]).tan().tolist()); // → [ 0, 1 ]
   * cpu.close();
   * ```
   */
  tan(this: Tensor): Tensor {
    return this.device.apply(trigonometric.tan, [this]);
  },
  /**
   * The angle whose sine is the element, in radians; NaN outside [-1, 1].
   *
   * @example
   * ```ts
   * import { device, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * console.log(tensor([0, 1, 2]).asin()); // → tensor([0.        1.5707964       NaN], shape [3], f32, cpu)
   * cpu.close();
   * ```
   */
  asin(this: Tensor): Tensor {
    return this.device.apply(trigonometric.asin, [this]);
  },
  /**
   * The angle whose cosine is the element, in radians; NaN outside [-1, 1].
   *
   * @example
   * ```ts
   * import { device, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * console.log(tensor([1, -1]).acos()); // → tensor([0.        3.1415927], shape [2], f32, cpu)
   * cpu.close();
   * ```
   */
  acos(this: Tensor): Tensor {
    return this.device.apply(trigonometric.acos, [this]);
  },
  /**
   * The angle whose tangent is the element, between -π/2 and π/2.
   *
   * @example
   * ```ts
   * import { device, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * console.log(tensor([1, -Infinity]).atan()); // → tensor([ 0.7853982 -1.5707964], shape [2], f32, cpu)
   * cpu.close();
   * ```
   */
  atan(this: Tensor): Tensor {
    return this.device.apply(trigonometric.atan, [this]);
  },
  /**
   * The hyperbolic sine.
   *
   * @example
   * ```ts
   * import { device, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * console.log(tensor([0, -200]).sinh().tolist()); // → [ 0, -Infinity ]
   * cpu.close();
   * ```
   */
  sinh(this: Tensor): Tensor {
    return this.device.apply(trigonometric.sinh, [this]);
  },
  /**
   * The hyperbolic cosine.
   *
   * @example
   * ```ts
   * import { device, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * console.log(tensor([0, -200]).cosh().tolist()); // → [ 1, Infinity ]
   * cpu.close();
   * ```
   */
  cosh(this: Tensor): Tensor {
    return this.device.apply(trigonometric.cosh, [this]);
  },
  /**
   * The inverse hyperbolic sine.
   *
   * @example
   * ```ts
   * import { device, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * console.log(tensor([0, 1]).asinh()); // → tensor([0.        0.8813736], shape [2], f32, cpu)
   * cpu.close();
   * ```
   */
  asinh(this: Tensor): Tensor {
    return this.device.apply(trigonometric.asinh, [this]);
  },
  /**
   * The inverse hyperbolic cosine; NaN below 1.
   *
   * @example
   * ```ts
   * import { device, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * console.log(tensor([1, 0.5]).acosh().tolist()); // → [ 0, NaN ]
   * cpu.close();
   * ```
   */
  acosh(this: Tensor): Tensor {
    return this.device.apply(trigonometric.acosh, [this]);
  },
  /**
   * The inverse hyperbolic tangent; infinite at -1 and 1, and NaN outside.
   *
   * @example
   * ```ts
   * import { device, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * console.log(tensor([0, 1, 2]).atanh().tolist()); // → [ 0, Infinity, NaN ]
   * cpu.close();
   * ```
   */
  atanh(this: Tensor): Tensor {
    return this.device.apply(trigonometric.atanh, [this]);
  },
  /**
   * sin(πx) / (πx), and 1 at 0.
   *
   * @example
   * ```ts
   * import { device, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * console.log(tensor([0, 0.5]).sinc()); // → tensor([1.         0.63661975], shape [2], f32, cpu)
   * cpu.close();
   * ```
   */
  sinc(this: Tensor): Tensor {
    return this.device.apply(trigonometric.sinc, [this]);
  },
  /**
   * Degrees as radians.
   *
   * @example
   * ```ts
   * import { device, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * console.log(tensor([180]).deg2rad().item() === Math.fround(Math.PI)); // → true
   * cpu.close();
   * ```
   */
  deg2rad(this: Tensor): Tensor {
    return this.device.apply(trigonometric.deg2rad, [this]);
  },
  /**
   * Radians as degrees.
   *
   * @example
   * ```ts
   * import { device, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * console.log(tensor([Math.PI]).rad2deg().tolist()); // → [ 180 ]
   * cpu.close();
   * ```
   */
  rad2deg(this: Tensor): Tensor {
    return this.device.apply(trigonometric.rad2deg, [this]);
  },
  /**
   * The angle of the point (other, this), between -π and π: this is y, and the other is x.
   *
   * @example
   * ```ts
   * import { device, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * console.log(tensor([1, -1]).atan2(tensor([1, -1]))); // → tensor([ 0.7853982 -2.3561945], shape [2], f32, cpu)
   * cpu.close();
   * ```
   */
  atan2(this: Tensor, other: Other): Tensor {
    return this.device.apply(trigonometric.atan2, [this, other]);
  },
  /**
   * √(this² + other²) without overflow of the squares.
   *
   * @example
   * ```ts
   * import { device, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * console.log(tensor([3, 5]).hypot(tensor([4, 12])).tolist()); // → [ 5, 13 ]
   * cpu.close();
   * ```
   */
  hypot(this: Tensor, other: Other): Tensor {
    return this.device.apply(trigonometric.hypot, [this, other]);
  },
};
