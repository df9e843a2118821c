/** Views and movement as methods of tensors. */

import { expand, permute, reshape, type Shape } from "../../ops/index.js";
import type { Tensor } from "../tensor.js";

export const movementMethods = {
  /** The same elements in another shape; one size may be -1. A view wherever the memory allows it. */
  reshape(this: Tensor, shape: Shape): Tensor {
    return this.device.apply(reshape, [this], { shape });
  },
  /** The axes in another order; a view. */
  permute(this: Tensor, axes: readonly number[]): Tensor {
    return this.device.apply(permute, [this], { axes });
  },
  /** Stretched over axes of size 1 and new ones in front; a view. */
  expand(this: Tensor, shape: Shape): Tensor {
    return this.device.apply(expand, [this], { shape });
  },
};
