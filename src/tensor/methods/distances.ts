/** Distances and bounded norms as methods of tensors, by PyTorch's names. */

import { HoldfastError } from "../../errors/index.js";
import { axisOf, contiguous } from "../../ops/index.js";
import { normOf } from "../algebra/index.js";
import type { Tensor } from "../tensor.js";

export const distanceMethods = {
  /**
   * The p-norm of the difference of two tensors. Default p: 2.
   *
   * @example
   * ```ts
   * import { device, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * const x = tensor([3, 4]);
   * console.log(x.dist(tensor([0, 0])).item(), x.dist(tensor(1), 1).item()); // → 5 5
   * cpu.close();
   * ```
   */
  dist(this: Tensor, other: Tensor, p = 2): Tensor {
    return normOf(this.sub(other), undefined, p);
  },
  /**
   * Scales every slice of an axis that has a p-norm above `maxNorm` down to that norm.
   *
   * @example
   * ```ts
   * import { device, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * console.log(tensor([[3, 4]]).renorm(2, 0, 1)); // → tensor([[0.6 0.8]], shape [1, 2], f32, cpu)
   * cpu.close();
   * ```
   */
  renorm(this: Tensor, p: number, axis: number, maxNorm: number): Tensor {
    const index = axisOf("renorm", axis, this.ndim);
    if (!(p > 0) || !(maxNorm >= 0)) {
      throw new HoldfastError(
        "BAD_ARGUMENT",
        `renorm: p is ${p} and maxNorm ${maxNorm}. Pass a p above 0 and a maxNorm of 0 or more.`,
        { numbers: { p, maxNorm } },
      );
    }
    const others = this.shape.flatMap((_, other) => (other === index ? [] : [other]));
    const norms = this.norm(others, { p, keepdim: true });
    const factors = norms.add(1e-7).reciprocal().mul(maxNorm);
    return this.mul(factors.where(norms.gt(maxNorm), 1));
  },
  /**
   * `renorm` in place.
   *
   * @example
   * ```ts
   * import { device, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * console.log(tensor([[3, 4], [0.5, 0]]).renorm_(2, 0, 5).tolist()); // → [ [ 3, 4 ], [ 0.5, 0 ] ]
   * cpu.close();
   * ```
   */
  renorm_(this: Tensor, p: number, axis: number, maxNorm: number): Tensor {
    return this.device.applyInPlace(contiguous, this, [this.renorm(p, axis, maxNorm)]);
  },
};
