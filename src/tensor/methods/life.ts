/** Gradients sent back and forgotten, memory kept and given back, as methods of tensors. */

import type { Tensor } from "../tensor.js";

export const lifeMethods = {
  /**
   * Asks for a gradient, or no longer, and gives the tensor back.
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
  requiresGrad_(this: Tensor, wanted = true): Tensor {
    this.requiresGrad = wanted;
    return this;
  },
  /**
   * Forgets the gradient that has arrived. Costs nothing: the next one overwrites it.
   * What was taken of `grad` before may hold anything behind a compiled step that forgets it.
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
   * Sends a gradient back from here: 1 for a single number, or the given one, which has this tensor's shape.
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
  backward(this: Tensor, gradient?: Tensor, options: { readonly retainGraph?: boolean } = {}): void {
    this.device.backward(this, gradient, options);
  },
  /**
   * Carries a tensor out of its step: its memory stays until `release()`, and it is cut off from the graph, which ends
   * with the step. A result of a compiled step is copied.
   *
   * @example
   * ```ts
   * import { device, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * const kept = cpu.step(() => tensor([1, 2]).mul(3).keep());
   * console.log(kept.tolist()); // → [ 3, 6 ]
   * cpu.close();
   * ```
   */
  keep(this: Tensor): Tensor {
    return this.device.keep(this);
  },
  /**
   * Frees the memory of a kept tensor, or of one created outside every step.
   *
   * @example
   * ```ts
   * import { device, HoldfastError, ones } from "holdfast";
   * const cpu = await device("cpu");
   * const kept = cpu.step(() => ones([1000]).keep());
   * kept.release();
   * try {
   *   kept.sum();
   * } catch (error) {
   *   if (error instanceof HoldfastError) console.log(error.code); // → DEAD_TENSOR
   * }
   * cpu.close();
   * ```
   */
  release(this: Tensor): void {
    this.device.release(this);
  },
};
