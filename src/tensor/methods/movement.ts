/** Elements moved or repeated, as methods of tensors. */

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
   * A border of one value: sizes before and after each axis, from the last axis on, as in PyTorch. Negative ones crop.
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
    const seen = axis === undefined ? this.flatten() : this;
    return this.device.apply(repeatInterleave, [seen], { repeats, axis: axis ?? 0 });
  },
  /**
   * The whole several times along each axis; aligned at the last ones.
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
