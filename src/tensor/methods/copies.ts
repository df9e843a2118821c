/** Copies of a tensor: in another dtype, on another device, in new memory, in row-major order. */

import type { Dtype } from "../../ir/index.js";
import { cast, contiguous, requireDtype } from "../../ops/index.js";
import { copyToDevice, destinationOf, type TensorDestination } from "../destination.js";
import type { Tensor } from "../tensor.js";

export const copyMethods = {
  /**
   * The same values in another dtype, on another device, or both, as `x.to(dtype)`, `x.to(device)`, `x.to(device, dtype)` or, like another
   * tensor, `x.to(other)`. The tensor itself if nothing differs. Integers drop the fraction. A copy on another device has no gradient.
   *
   * @example
   * ```ts
   * import { device, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * const x = tensor([1.7, -1.7, 0]);
   * console.log(x.to("i32").tolist(), x.to("bool").tolist(), x.to("f32") === x);
   * // → [ 1, -1, 0 ] [ true, true, false ] true
   * console.log(x.to(cpu, "f64").dtype, x.to(tensor([1], { dtype: "u8" })).dtype); // → f64 u8
   * cpu.close();
   * ```
   */
  to(this: Tensor, destination: TensorDestination, dtype?: Dtype): Tensor {
    const { device = this.device, dtype: wanted = this.dtype } = destinationOf(destination, dtype);
    requireDtype("to", wanted);
    const converted = this.dtype === wanted ? this : this.device.apply(cast, [this], { dtype: wanted });
    return device === this.device ? converted : copyToDevice(converted, device);
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
