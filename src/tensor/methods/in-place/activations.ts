/** Activations in place: the result overwrites the tensor, at the same address. */

import { activations } from "../../../ops/index.js";
import type { Tensor } from "../../tensor.js";

export const inPlaceActivationMethods = {
  /**
   * Sets negative elements to 0.
   *
   * @example
   * ```ts
   * import { device, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * console.log(tensor([-1, 2]).relu_().tolist()); // → [ 0, 2 ]
   * cpu.close();
   * ```
   */
  relu_(this: Tensor): Tensor {
    return this.device.applyInPlace(activations.relu, this, [this]);
  },
  /**
   * Scales negative elements. Default factor: 0.01.
   *
   * @example
   * ```ts
   * import { device, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * console.log(tensor([-8, 2]).leakyRelu_(0.125).tolist()); // → [ -1, 2 ]
   * cpu.close();
   * ```
   */
  leakyRelu_(this: Tensor, negativeSlope = 0.01): Tensor {
    return this.device.applyInPlace(activations.leakyRelu, this, [this], { negativeSlope });
  },
  /**
   * x·sigmoid(x) in place.
   *
   * @example
   * ```ts
   * import { device, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * console.log(tensor([0, 100]).silu_().tolist()); // → [ 0, 100 ]
   * cpu.close();
   * ```
   */
  silu_(this: Tensor): Tensor {
    return this.device.applyInPlace(activations.silu, this, [this]);
  },
  /**
   * The hyperbolic tangent in place.
   *
   * @example
   * ```ts
   * import { device, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * console.log(tensor([0, -100]).tanh_().tolist()); // → [ 0, -1 ]
   * cpu.close();
   * ```
   */
  tanh_(this: Tensor): Tensor {
    return this.device.applyInPlace(activations.tanh, this, [this]);
  },
  /**
   * 1/(1 + e⁻ˣ) in place.
   *
   * @example
   * ```ts
   * import { device, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * console.log(tensor([0, 100]).sigmoid_().tolist()); // → [ 0.5, 1 ]
   * cpu.close();
   * ```
   */
  sigmoid_(this: Tensor): Tensor {
    return this.device.applyInPlace(activations.sigmoid, this, [this]);
  },
};
