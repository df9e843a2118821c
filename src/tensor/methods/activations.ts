/** Activations as methods of tensors. */

import { activations, logSoftmax, softmax } from "../../ops/index.js";
import type { Tensor } from "../tensor.js";

export const activationMethods = {
  /**
   * max(x, 0).
   *
   * @example
   * ```ts
   * import { device, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * console.log(tensor([-1, 0, 2]).relu().tolist()); // → [ 0, 0, 2 ]
   * cpu.close();
   * ```
   */
  relu(this: Tensor): Tensor {
    return this.device.apply(activations.relu, [this]);
  },
  /**
   * x if positive, else x times a slope. Default slope: 0.01.
   *
   * @example
   * ```ts
   * import { device, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * console.log(tensor([-4, 2]).leakyRelu(0.25).tolist()); // → [ -1, 2 ]
   * cpu.close();
   * ```
   */
  leakyRelu(this: Tensor, negativeSlope = 0.01): Tensor {
    return this.device.apply(activations.leakyRelu, [this], { negativeSlope });
  },
  /**
   * The hyperbolic tangent: from −1 to 1.
   *
   * @example
   * ```ts
   * import { device, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * console.log(tensor([-100, 0, 0.5]).tanh()); // → tensor([-1.          0.          0.46211717], shape [3], f32, cpu)
   * cpu.close();
   * ```
   */
  tanh(this: Tensor): Tensor {
    return this.device.apply(activations.tanh, [this]);
  },
  /**
   * 1/(1 + e⁻ˣ): from 0 to 1.
   *
   * @example
   * ```ts
   * import { device, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * console.log(tensor([-1000, 0, 2]).sigmoid()); // → tensor([0.        0.5       0.8807971], shape [3], f32, cpu)
   * cpu.close();
   * ```
   */
  sigmoid(this: Tensor): Tensor {
    return this.device.apply(activations.sigmoid, [this]);
  },
  /**
   * x·sigmoid(x).
   *
   * @example
   * ```ts
   * import { device, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * console.log(tensor([1]).silu().item().toFixed(4), tensor([1]).sigmoid().item().toFixed(4)); // → 0.7311 0.7311
   * cpu.close();
   * ```
   */
  silu(this: Tensor): Tensor {
    return this.device.apply(activations.silu, [this]);
  },
  /**
   * log(1 + eˣ), a smooth relu; it does not overflow.
   *
   * @example
   * ```ts
   * import { device, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * console.log(tensor([0, 100]).softplus()); // → tensor([  0.6931472 100.       ], shape [2], f32, cpu)
   * cpu.close();
   * ```
   */
  softplus(this: Tensor): Tensor {
    return this.device.apply(activations.softplus, [this]);
  },
  /**
   * x·Φ(x) by the error function, or by GPT-2's "tanh" approximation.
   *
   * @example
   * ```ts
   * import { device, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * const x = tensor([-1, 1]);
   * console.log(x.gelu()); // → tensor([-0.15865526  0.8413447 ], shape [2], f32, cpu)
   * console.log(x.gelu("tanh")); // → tensor([-0.158808  0.841192], shape [2], f32, cpu)
   * cpu.close();
   * ```
   */
  gelu(this: Tensor, approximate: "none" | "tanh" = "none"): Tensor {
    return this.device.apply(approximate === "tanh" ? activations.geluTanh : activations.gelu, [this]);
  },
  /**
   * Exponentials along an axis, divided by their sum; large elements do not overflow.
   *
   * @example
   * ```ts
   * import { device, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * console.log(tensor([[1000, 1000], [0, -Infinity]]).softmax(-1).tolist()); // → [ [ 0.5, 0.5 ], [ 1, 0 ] ]
   * cpu.close();
   * ```
   */
  softmax(this: Tensor, axis: number): Tensor {
    return this.device.apply(softmax, [this], { axis });
  },
  /**
   * The logarithm of `softmax`, accurate even where that underflows to 0.
   *
   * @example
   * ```ts
   * import { device, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * console.log(tensor([1000, 0]).logSoftmax(0).tolist()); // → [ 0, -1000 ]
   * cpu.close();
   * ```
   */
  logSoftmax(this: Tensor, axis: number): Tensor {
    return this.device.apply(logSoftmax, [this], { axis });
  },
};
