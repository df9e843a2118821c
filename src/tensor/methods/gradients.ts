/** Methods of tensors that run backward, and that enable or clear gradients. */

import type { BackwardOptions } from "../device-methods/backward.js";
import type { Tensor } from "../tensor.js";

export const gradientMethods = {
  /**
   * Enables or disables the gradient, and returns the tensor.
   *
   * @example
   * ```ts
   * import { device, ones } from "holdfast";
   * const cpu = await device("cpu");
   * const w = ones([2]).requiresGrad_();
   * console.log(w.mul(2).requiresGrad); // → true
   * cpu.close();
   * ```
   */
  requiresGrad_(this: Tensor, requiresGrad = true): Tensor {
    this.requiresGrad = requiresGrad;
    return this;
  },
  /**
   * Discards the gradient. Costs nothing: the next gradient overwrites it. After a compiled step that calls `zeroGrad()`, do not
   * read a saved `grad` reference.
   *
   * @example
   * ```ts
   * import { device, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * const x = tensor([1, 2], { requiresGrad: true });
   * x.sum().backward();
   * x.zeroGrad();
   * console.log(x.grad); // → null
   * cpu.close();
   * ```
   */
  zeroGrad(this: Tensor): void {
    this.gradientHolder?.clear();
  },
  /**
   * Runs backward from this tensor. The initial gradient has the shape of the tensor. Default: 1, for a single number.
   *
   * With `createGraph`, backward is recorded: the gradients have graphs of their own, as those of `autograd.grad`. With `inputs`, only these
   * tensors accumulate a gradient.
   *
   * @example
   * ```ts
   * import { device, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * const x = tensor([1, 2, 3], { requiresGrad: true });
   * x.mul(x).sum().backward();
   * console.log(x.grad?.tolist()); // → [ 2, 4, 6 ]
   * cpu.close();
   * ```
   */
  backward(this: Tensor, gradient?: Tensor | null, options: BackwardOptions = {}): void {
    this.device.backward([this], [gradient], options);
  },
};
