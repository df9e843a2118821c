/** Arithmetic in place: the result overwrites the tensor, at the same address. */

import { add, contiguous, div, functions, mul, pow, sub } from "../../../ops/index.js";
import type { Tensor } from "../../tensor.js";
import type { Other } from "../arithmetic.js";

export const inPlaceArithmeticMethods = {
  /**
   * Adds in place: the sum overwrites the tensor.
   *
   * @example
   * ```ts
   * import { device, tensor, zeros } from "holdfast";
   * const cpu = await device("cpu");
   * const total = zeros([2]);
   * for (const row of [[1, 2], [3, 4]]) total.add_(tensor(row));
   * console.log(total.tolist()); // → [ 4, 6 ]
   * cpu.close();
   * ```
   */
  add_(this: Tensor, other: Other): Tensor {
    return this.device.applyInPlace(add, this, [this, other]);
  },
  /**
   * Subtracts in place. A leaf that requires a gradient can only be changed inside `noGrad`. The example is one step of gradient
   * descent.
   *
   * @example
   * ```ts
   * import { device, noGrad, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * const w = tensor([3], { requiresGrad: true });
   * w.square().sum().backward();
   * noGrad(() => w.sub_(w.grad?.mul(0.5) ?? 0));
   * console.log(w.tolist()); // → [ 0 ]
   * cpu.close();
   * ```
   */
  sub_(this: Tensor, other: Other): Tensor {
    return this.device.applyInPlace(sub, this, [this, other]);
  },
  /**
   * Multiplies in place. A view writes to its base tensor.
   *
   * @example
   * ```ts
   * import { device, ones } from "holdfast";
   * const cpu = await device("cpu");
   * const x = ones([2, 3]);
   * x.select(1, 0).mul_(5);
   * console.log(x.tolist()); // → [ [ 5, 1, 1 ], [ 5, 1, 1 ] ]
   * cpu.close();
   * ```
   */
  mul_(this: Tensor, other: Other): Tensor {
    return this.device.applyInPlace(mul, this, [this, other]);
  },
  /**
   * Divides in place.
   *
   * @example
   * ```ts
   * import { device, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * const x = tensor([[2, 4], [3, 9]]);
   * console.log(x.div_(tensor([[2], [3]])).tolist()); // → [ [ 1, 2 ], [ 1, 3 ] ]
   * cpu.close();
   * ```
   */
  div_(this: Tensor, other: Other): Tensor {
    return this.device.applyInPlace(div, this, [this, other]);
  },
  /**
   * Raises to a power in place.
   *
   * @example
   * ```ts
   * import { device, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * console.log(tensor([1, 2, 3]).pow_(2).tolist()); // → [ 1, 4, 9 ]
   * cpu.close();
   * ```
   */
  pow_(this: Tensor, exponent: Other): Tensor {
    return this.device.applyInPlace(pow, this, [this, exponent]);
  },
  /**
   * Copies the values of another tensor. They broadcast, and are converted to the dtype of this tensor.
   *
   * @example
   * ```ts
   * import { device, tensor, zeros } from "holdfast";
   * const cpu = await device("cpu");
   * const x = zeros([2, 2]);
   * x.copy_(tensor([7, 8], { dtype: "i32" }));
   * console.log(x.tolist(), x.dtype); // → [ [ 7, 8 ], [ 7, 8 ] ] f32
   * cpu.close();
   * ```
   */
  copy_(this: Tensor, source: Tensor): Tensor {
    const expanded = source.expand(this.shape);
    return this.device.applyInPlace(contiguous, this, [expanded]);
  },
  /**
   * Sets every element to a number.
   *
   * @example
   * ```ts
   * import { device, zeros } from "holdfast";
   * const cpu = await device("cpu");
   * const x = zeros([2, 3]);
   * x.slice(null, [1, null]).fill_(4);
   * console.log(x.tolist()); // → [ [ 0, 4, 4 ], [ 0, 4, 4 ] ]
   * cpu.close();
   * ```
   */
  fill_(this: Tensor, value: number): Tensor {
    return this.device.applyInPlace(functions.fill, this, [this], { value });
  },
  /**
   * Sets every element to 0.
   *
   * @example
   * ```ts
   * import { device, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * console.log(tensor([1, NaN]).zero_().tolist()); // → [ 0, 0 ]
   * cpu.close();
   * ```
   */
  zero_(this: Tensor): Tensor {
    return this.fill_(0);
  },
};
