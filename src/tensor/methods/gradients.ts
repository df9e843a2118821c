/** Methods of tensors that run backward, and that enable or clear gradients. */

import { hooksOf, retainGradient } from "../../autograd/index.js";
import { checkOptions } from "../../errors/index.js";
import type { BackwardOptions } from "../device-methods/backward.js";
import { backwardOptionNames } from "../device-methods/backward.js";
import { type GradientHook, type HookHandle, hookOfTensor, requireGradient } from "../gradient-hook.js";
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
   * Calls a function with the gradient of this tensor in every backward pass, when all of its parts have arrived, and before it is added to
   * `grad`. If the function returns a tensor, it replaces the gradient. The function runs without recording, except with `createGraph`.
   *
   * In a compiled step hooks run while the step is traced and audited, like the rest of its function, and their ops are part of the step.
   *
   * @example
   * ```ts
   * import { device, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * const x = tensor([1, 2], { requiresGrad: true });
   * const handle = x.registerHook((gradient) => gradient.mul(10));
   * x.mul(3).sum().backward();
   * console.log(x.grad?.tolist()); // → [ 30, 30 ]
   * handle.remove();
   * cpu.close();
   * ```
   */
  registerHook(this: Tensor, hook: GradientHook): HookHandle {
    const hooks = hooksOf(this.value);
    if (!hooks) throw requireGradient("registerHook", this);
    return { remove: hooks.add(hookOfTensor(this, hook)) };
  },
  /**
   * Lets the result of an op accumulate its gradient in `grad`, as leaves do. Call it before backward.
   *
   * @example
   * ```ts
   * import { device, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * cpu.step(() => {
   *   const x = tensor([1, 2], { requiresGrad: true });
   *   const y = x.mul(3);
   *   y.retainGrad();
   *   y.mul(y).sum().backward();
   *   console.log(y.grad?.tolist()); // → [ 6, 12 ]
   * });
   * cpu.close();
   * ```
   */
  retainGrad(this: Tensor): void {
    if (!this.requiresGrad) throw requireGradient("retainGrad", this);
    retainGradient(this.value, () => this.accumulator());
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
    checkOptions("backward", options, backwardOptionNames);
    this.device.backward([this], [gradient], options);
  },
};
