/** Methods of tensors that keep or free memory. */

import type { Tensor } from "../tensor.js";

export const lifetimeMethods = {
  /**
   * Keeps a tensor beyond its step: its memory lives until `release()`. It is detached from the graph, which ends with the
   * step. A result of a compiled step is copied.
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
   * Frees the memory of a kept tensor, or of a tensor created outside every step.
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
