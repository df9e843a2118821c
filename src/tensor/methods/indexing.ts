/** Reads and writes at the indices of another tensor, as methods of tensors. */

import { gather, indexSelect, maskedFill, scatterAdd } from "../../ops/index.js";
import type { Tensor } from "../tensor.js";
import type { Other } from "./arithmetic.js";

export const indexingMethods = {
  /**
   * The slices of an axis at a list of indices. An index outside the axis is an error.
   *
   * @example
   * ```ts
   * import { device, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * const x = tensor([[1, 2], [3, 4], [5, 6]]);
   * console.log(x.indexSelect(0, tensor([2, 0], { dtype: "i32" })).tolist()); // → [ [ 5, 6 ], [ 1, 2 ] ]
   * cpu.close();
   * ```
   */
  indexSelect(this: Tensor, axis: number, index: Tensor): Tensor {
    return this.device.apply(indexSelect, [this, index], { axis });
  },
  /**
   * One element along an axis for each index: `result[i, j] = this[i, index[i, j]]` for axis 1.
   *
   * @example
   * ```ts
   * import { device, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * const probabilities = tensor([[0.5, 0.25, 0.25], [0, 0, 1]]);
   * const labels = tensor([[1], [2]], { dtype: "i32" });
   * console.log(probabilities.gather(1, labels).tolist()); // → [ [ 0.25 ], [ 1 ] ]
   * cpu.close();
   * ```
   */
  gather(this: Tensor, axis: number, index: Tensor): Tensor {
    return this.device.apply(gather, [this, index], { axis });
  },
  /**
   * Adds the elements of the source at indices along an axis: `result[index[i, j], j] += source[i, j]` for axis 0. The order of
   * the additions is fixed, so the result is deterministic.
   *
   * @example
   * ```ts
   * import { device, ones, tensor, zeros } from "holdfast";
   * const cpu = await device("cpu");
   * const words = tensor([2, 0, 2], { dtype: "i32" });
   * console.log(zeros([3]).scatterAdd(0, words, ones([3])).tolist()); // → [ 1, 0, 2 ]
   * cpu.close();
   * ```
   */
  scatterAdd(this: Tensor, axis: number, index: Tensor, source: Tensor): Tensor {
    return this.device.apply(scatterAdd, [this, index, source], { axis });
  },
  /**
   * `scatterAdd` in place.
   *
   * @example
   * ```ts
   * import { device, tensor, zeros } from "holdfast";
   * const cpu = await device("cpu");
   * const counts = zeros([2]);
   * counts.scatterAdd_(0, tensor([1, 1], { dtype: "i32" }), tensor([5, 6]));
   * console.log(counts.tolist()); // → [ 0, 11 ]
   * cpu.close();
   * ```
   */
  scatterAdd_(this: Tensor, axis: number, index: Tensor, source: Tensor): Tensor {
    return this.device.applyInPlace(scatterAdd, this, [this, index, source], { axis });
  },
  /**
   * Replaces elements by a value where the boolean mask is true. No gradient flows to the replaced elements.
   *
   * @example
   * ```ts
   * import { device, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * const scores = tensor([[1, 2], [3, 4]]);
   * const isLater = tensor([[false, true], [false, false]]);
   * console.log(scores.maskedFill(isLater, -Infinity).softmax(-1));
   * // → tensor([[1.         0.        ]
   * // →         [0.26894143 0.7310586 ]], shape [2, 2], f32, cpu)
   * cpu.close();
   * ```
   */
  maskedFill(this: Tensor, mask: Tensor, value: Other): Tensor {
    return this.device.apply(maskedFill, [this, mask, value]);
  },
  /**
   * `maskedFill` in place.
   *
   * @example
   * ```ts
   * import { device, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * const x = tensor([1, NaN, 3]);
   * x.maskedFill_(x.isnan(), 0);
   * console.log(x.tolist()); // → [ 1, 0, 3 ]
   * cpu.close();
   * ```
   */
  maskedFill_(this: Tensor, mask: Tensor, value: Other): Tensor {
    return this.device.applyInPlace(maskedFill, this, [this, mask, value]);
  },
};
