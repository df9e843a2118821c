/** Methods of tensors that move or repeat elements. */

import { HoldfastError } from "../../errors/index.js";
import { axisOf, flip, formatShape, pad, repeatInterleave, tile } from "../../ops/index.js";
import { fromTyped } from "../creation.js";
import type { Tensor } from "../tensor.js";

/** The elements of a vector of integers. */
function countsOf(repeats: Tensor): readonly number[] {
  return [...repeats.flatten().dataSync()];
}

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
   * Repeats each element: along an axis, or of the flattened tensor. `repeats` is one number, or a list or a tensor with a number for each
   * element. A tensor is read back, so compiled steps reject it.
   *
   * @example
   * ```ts
   * import { device, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * console.log(tensor([[1, 2], [3, 4]]).repeatInterleave(2, 0).tolist());
   * // → [ [ 1, 2 ], [ 1, 2 ], [ 3, 4 ], [ 3, 4 ] ]
   * console.log(tensor([5, 6, 7]).repeatInterleave([2, 0, 1]).tolist()); // → [ 5, 5, 7 ]
   * cpu.close();
   * ```
   */
  repeatInterleave(this: Tensor, repeats: number | readonly number[] | Tensor, axis?: number): Tensor {
    const source = axis === undefined ? this.flatten() : this;
    if (typeof repeats === "number")
      return this.device.apply(repeatInterleave, [source], { repeats, axis: axis ?? 0 });
    const along = axisOf("repeatInterleave", axis ?? 0, source.ndim);
    const counts = "dtype" in repeats ? countsOf(repeats) : repeats;
    const size = source.shape[along] ?? 0;
    if (counts.length !== size || !counts.every((count) => Number.isSafeInteger(count) && count >= 0)) {
      throw new HoldfastError(
        "BAD_ARGUMENT",
        `repeatInterleave: repeats are [${counts.join(", ")}], and axis ${along} of ${formatShape(source.shape)} has ${size} elements. ` +
          "Pass a whole number for each, 0 or more.",
      );
    }
    const rows = Int32Array.from(counts.flatMap((count, index) => new Array<number>(count).fill(index)));
    return source.indexSelect(along, fromTyped(rows, [rows.length], { device: this.device }));
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
