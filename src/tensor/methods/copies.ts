/** Copies of a tensor: in another dtype, in new memory, in row-major order. */

import type { Dtype } from "../../ir/index.js";
import { cast, contiguous } from "../../ops/index.js";
import type { Tensor } from "../tensor.js";

export const copyMethods = {
  /**
   * The same values in another dtype, or the tensor itself if it has that dtype. Integers drop the fraction.
   *
   * @example
   * ```ts
   * import { device, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * const x = tensor([1.7, -1.7, 0]);
   * console.log(x.to("i32").tolist(), x.to("bool").tolist(), x.to("f32") === x);
   * // → [ 1, -1, 0 ] [ true, true, false ] true
   * cpu.close();
   * ```
   */
  to(this: Tensor, dtype: Dtype): Tensor {
    return this.dtype === dtype ? this : this.device.apply(cast, [this], { dtype });
  },
  /**
   * A copy in new memory; the gradient flows through it.
   *
   * @example
   * ```ts
   * import { device, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * const x = tensor([1, 2]);
   * const copy = x.clone();
   * x.zero_();
   * console.log(copy.tolist()); // → [ 1, 2 ]
   * cpu.close();
   * ```
   */
  clone(this: Tensor): Tensor {
    return this.device.apply(contiguous, [this]);
  },
  /**
   * A row-major copy, or the tensor itself if it is already contiguous.
   *
   * @example
   * ```ts
   * import { device, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * const transposed = tensor([[1, 2], [3, 4]]).t();
   * console.log(transposed.isContiguous, transposed.contiguous().isContiguous); // → false true
   * cpu.close();
   * ```
   */
  contiguous(this: Tensor): Tensor {
    return this.isContiguous ? this : this.device.apply(contiguous, [this]);
  },
};
