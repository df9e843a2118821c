/** Reads and writes at places that another tensor tells, as methods of tensors. */

import { comparisons, gather, indexSelect, maskedFill, scatterAdd } from "../../ops/index.js";
import type { Tensor } from "../tensor.js";
import type { Other } from "./elementwise.js";

export const indexingMethods = {
  /**
   * The slices of an axis that a list of indices names. An index outside the axis is an error, here and below.
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
  /** One element along an axis for each index: `result[i, j] = this[i, index[i, j]]` for axis 1. */
  gather(this: Tensor, axis: number, index: Tensor): Tensor {
    return this.device.apply(gather, [this, index], { axis });
  },
  /**
   * With the source's elements added at the indices along an axis: `result[index[i, j], j] += source[i, j]` for axis 0.
   * Always in the same order, so the bits are fixed.
   */
  scatterAdd(this: Tensor, axis: number, index: Tensor, source: Tensor): Tensor {
    return this.device.apply(scatterAdd, [this, index, source], { axis });
  },
  /** `scatterAdd` in place. */
  scatterAdd_(this: Tensor, axis: number, index: Tensor, source: Tensor): Tensor {
    return this.device.applyInPlace(scatterAdd, this, [this, index, source], { axis });
  },
  /** A value wherever the mask, of truth values, holds; no gradient flows there. */
  maskedFill(this: Tensor, mask: Tensor, value: Other): Tensor {
    return this.device.apply(maskedFill, [this, mask, value]);
  },
  /** `maskedFill` in place. */
  maskedFill_(this: Tensor, mask: Tensor, value: Other): Tensor {
    return this.device.applyInPlace(comparisons.where, this, [mask, value, this]);
  },
};
