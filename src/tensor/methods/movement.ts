/** Methods of tensors that move or repeat elements. */

import { flip, pad, repeatInterleave, tile } from "../../ops/index.js";
import type { Tensor } from "../tensor.js";

export const movementMethods = {
  /**
   * The elements along these axes in reverse order.
   *
   * @example
   * ```ts
   * import { device, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * console.log(tensor([[1, 2, 3], [4, 5, 6]]).flip(-1).tolist()); // → [ [ 3, 2, 1 ], [ 6, 5, 4 ] ]
   * cpu.close();
   * ```
   */
  flip(this: Tensor, axes: number | readonly number[]): Tensor {
    return this.device.apply(flip, [this], { axes });
  },
  /**
   * Pads with a value. `pads` has the sizes before and after each axis, starting with the last axis, as in PyTorch. Negative
   * sizes crop.
   *
   * @example
   * ```ts
   * import { device, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * console.log(tensor([[1, 2]]).pad([1, 0, 0, 1], 9).tolist()); // → [ [ 9, 1, 2 ], [ 9, 9, 9 ] ]
   * cpu.close();
   * ```
   */
  pad(this: Tensor, pads: readonly number[], value = 0): Tensor {
    return this.device.apply(pad, [this], { pads, value });
  },
  /**
   * Repeats each element: along an axis, or of the flattened tensor.
   *
   * @example
   * ```ts
   * import { device, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * console.log(tensor([[1, 2], [3, 4]]).repeatInterleave(2, 0).tolist());
   * // → [ [ 1, 2 ], [ 1, 2 ], [ 3, 4 ], [ 3, 4 ] ]
   * cpu.close();
   * ```
   */
  repeatInterleave(this: Tensor, repeats: number, axis?: number): Tensor {
    const source = axis === undefined ? this.flatten() : this;
    return this.device.apply(repeatInterleave, [source], { repeats, axis: axis ?? 0 });
  },
  /**
   * Repeats the tensor along each axis. The counts align with the last axes.
   *
   * @example
   * ```ts
   * import { device, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * console.log(tensor([1, 2]).tile([2, 2]).tolist()); // → [ [ 1, 2, 1, 2 ], [ 1, 2, 1, 2 ] ]
   * cpu.close();
   * ```
   */
  tile(this: Tensor, repeats: readonly number[]): Tensor {
    return this.device.apply(tile, [this], { repeats });
  },
};
