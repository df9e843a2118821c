/** Diagonals and triangles of matrices, as methods of tensors. */

import { diagonal, tril, triu } from "../../ops/index.js";
import type { Tensor } from "../tensor.js";

export const diagonalMethods = {
  /**
   * The diagonal of two axes as a last axis: a view. A positive offset selects one above the main diagonal.
   *
   * @example
   * ```ts
   * import { device, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * const x = tensor([[1, 2], [3, 4]]);
   * console.log(x.diagonal().tolist(), x.diagonal(1).tolist()); // → [ 1, 4 ] [ 2 ]
   * cpu.close();
   * ```
   */
  diagonal(this: Tensor, offset = 0, axis1 = 0, axis2 = 1): Tensor {
    return this.device.apply(diagonal, [this], { offset, axis1, axis2 });
  },
  /**
   * The diagonal of a matrix, or the matrix with a vector on its diagonal.
   *
   * @example
   * ```ts
   * import { device, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * console.log(tensor([1, 2]).diag().tolist()); // → [ [ 1, 0 ], [ 0, 2 ] ]
   * cpu.close();
   * ```
   */
  diag(this: Tensor, offset = 0): Tensor {
    return this.ndim === 1 ? this.diagEmbed(offset) : this.diagonal(offset);
  },
  /**
   * The matrix with the flattened tensor on a diagonal.
   *
   * @example
   * ```ts
   * import { device, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * console.log(tensor([[1], [2]]).diagflat().tolist()); // → [ [ 1, 0 ], [ 0, 2 ] ]
   * cpu.close();
   * ```
   */
  diagflat(this: Tensor, offset = 0): Tensor {
    return this.flatten().diagEmbed(offset);
  },
  /**
   * Matrices with the last axis on a diagonal; their rows and columns are two new axes.
   *
   * @example
   * ```ts
   * import { device, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * console.log(tensor([1, 2]).diagEmbed(-1).tolist()); // → [ [ 0, 0, 0 ], [ 1, 0, 0 ], [ 0, 2, 0 ] ]
   * cpu.close();
   * ```
   */
  diagEmbed(this: Tensor, offset = 0, axis1 = -2, axis2 = -1): Tensor {
    const count = this.shape.at(-1) ?? 1;
    const size = count + Math.abs(offset);
    // In a flat matrix an element of the diagonal is one row and one column after the element before it.
    const spaced = this.unsqueeze(-1).pad([0, size]).flatten(-2);
    const first = offset >= 0 ? offset : -offset * size;
    const matrices = spaced
      .pad([first, size * size - first - count * (size + 1)])
      .unflatten(-1, [size, size]);
    return matrices.movedim([-2, -1], [axis1, axis2]);
  },
  /**
   * Sets the diagonal of a matrix to a number, in place.
   *
   * @example
   * ```ts
   * import { device, zeros } from "holdfast";
   * const cpu = await device("cpu");
   * console.log(zeros([2, 2]).fillDiagonal_(7).tolist()); // → [ [ 7, 0 ], [ 0, 7 ] ]
   * cpu.close();
   * ```
   */
  fillDiagonal_(this: Tensor, value: number): Tensor {
    this.diagonal().fill_(value);
    return this;
  },
  /**
   * Sets the elements above a diagonal to 0, in the matrices of the last two axes.
   *
   * @example
   * ```ts
   * import { device, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * console.log(tensor([[1, 2], [3, 4]]).tril().tolist()); // → [ [ 1, 0 ], [ 3, 4 ] ]
   * cpu.close();
   * ```
   */
  tril(this: Tensor, diagonal = 0): Tensor {
    return this.device.apply(tril, [this], { diagonal });
  },
  /**
   * Sets the elements below a diagonal to 0, in the matrices of the last two axes.
   *
   * @example
   * ```ts
   * import { device, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * console.log(tensor([[1, 2], [3, 4]]).triu().tolist()); // → [ [ 1, 2 ], [ 0, 4 ] ]
   * cpu.close();
   * ```
   */
  triu(this: Tensor, diagonal = 0): Tensor {
    return this.device.apply(triu, [this], { diagonal });
  },
};
