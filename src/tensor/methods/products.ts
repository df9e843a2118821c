/** Products of vectors and matrices as methods of tensors, by PyTorch's names. */

import { HoldfastError } from "../../errors/index.js";
import { axisOf, formatShape, isFloat, isSameShape } from "../../ops/index.js";
import { diagonalView, tensordot } from "../algebra/index.js";
import { cat } from "../functions.js";
import type { Tensor } from "../tensor.js";

export const productMethods = {
  /**
   * The product of a matrix and a vector.
   *
   * @example
   * ```ts
   * import { device, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * console.log(tensor([[1, 2], [3, 4]]).mv(tensor([1, -1])).tolist()); // → [ -1, -1 ]
   * cpu.close();
   * ```
   */
  mv(this: Tensor, vector: Tensor): Tensor {
    requireRanks("mv", [this, vector], [2, 1], "a matrix and a vector");
    return this.matmul(vector);
  },
  /**
   * The sum of the products of two vectors.
   *
   * @example
   * ```ts
   * import { device, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * console.log(tensor([1, 2, 3]).dot(tensor([4, 5, 6])).item()); // → 32
   * cpu.close();
   * ```
   */
  dot(this: Tensor, other: Tensor): Tensor {
    requireRanks("dot", [this, other], [1, 1], "two vectors");
    if (!isSameShape(this.shape, other.shape))
      throw misfit("dot", [this, other], "the vectors must have one length.");
    return isFloat(this.dtype) && isFloat(other.dtype) ? this.matmul(other) : this.mul(other).sum();
  },
  /**
   * `dot` by its other name in PyTorch; the names differ for complex numbers only.
   *
   * @example
   * ```ts
   * import { device, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * console.log(tensor([1, 2]).vdot(tensor([3, 4])).item()); // → 11
   * cpu.close();
   * ```
   */
  vdot(this: Tensor, other: Tensor): Tensor {
    return this.dot(other);
  },
  /**
   * The sums of products along the last axes: an axis for each other axis of the first, then of the second. With a number it is `mul`.
   *
   * @example
   * ```ts
   * import { device, ones, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * console.log(tensor([[1, 2], [3, 4]]).inner(tensor([1, 10])).tolist()); // → [ 21, 43 ]
   * console.log(ones([2, 3, 5]).inner(ones([4, 5])).shape); // → [ 2, 3, 4 ]
   * cpu.close();
   * ```
   */
  inner(this: Tensor, other: Tensor): Tensor {
    if (this.ndim === 0 || other.ndim === 0) return this.mul(other);
    if (this.size(-1) !== other.size(-1))
      throw misfit("inner", [this, other], "their last axes must have one size.");
    return tensordot(this, other, [[-1], [-1]]);
  },
  /**
   * The matrix of products of the elements of two vectors.
   *
   * @example
   * ```ts
   * import { device, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * console.log(tensor([1, 2]).outer(tensor([3, 4, 5])).tolist()); // → [ [ 3, 4, 5 ], [ 6, 8, 10 ] ]
   * cpu.close();
   * ```
   */
  outer(this: Tensor, other: Tensor): Tensor {
    requireRanks("outer", [this, other], [1, 1], "two vectors");
    return this.unsqueeze(1).mul(other);
  },
  /**
   * The Kronecker product: every element times the whole of the other tensor.
   *
   * @example
   * ```ts
   * import { device, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * console.log(tensor([[1, 10]]).kron(tensor([[1, 2], [3, 4]])).tolist()); // → [ [ 1, 2, 10, 20 ], [ 3, 4, 30, 40 ] ]
   * cpu.close();
   * ```
   */
  kron(this: Tensor, other: Tensor): Tensor {
    const rank = Math.max(this.ndim, other.ndim);
    const padded = ({ shape }: Tensor): readonly number[] => [
      ...new Array(rank - shape.length).fill(1),
      ...shape,
    ];
    const [a, b] = [padded(this), padded(other)];
    const product = this.reshape(a.flatMap((size) => [size, 1])).mul(
      other.reshape(b.flatMap((size) => [1, size])),
    );
    return product.reshape(a.map((size, axis) => size * (b[axis] ?? 1)));
  },
  /**
   * The cross product of vectors of three elements along an axis. Default: the first axis of size 3. The other axes broadcast.
   *
   * @example
   * ```ts
   * import { device, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * console.log(tensor([1, 0, 0]).cross(tensor([0, 1, 0])).tolist()); // → [ 0, 0, 1 ]
   * cpu.close();
   * ```
   */
  cross(this: Tensor, other: Tensor, axis?: number): Tensor {
    const along = axis === undefined ? this.shape.indexOf(3) : axisOf("cross", axis, this.ndim);
    const fromEnd = along - this.ndim;
    if (along < 0 || this.size(along) !== 3 || other.ndim < -fromEnd || other.size(fromEnd) !== 3) {
      const what = axis === undefined ? "no axis has" : `axis ${axis} must have`;
      throw misfit("cross", [this, other], `${what} 3 elements in both.`);
    }
    const rotate = (x: Tensor, by: number): Tensor =>
      cat([x.narrow(fromEnd, by, 3 - by), x.narrow(fromEnd, 0, by)], fromEnd);
    return rotate(this, 1)
      .mul(rotate(other, 2))
      .sub(rotate(this, 2).mul(rotate(other, 1)));
  },
  /**
   * The sum of a matrix's diagonal.
   *
   * @example
   * ```ts
   * import { device, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * console.log(tensor([[1, 2], [3, 4]]).trace().item()); // → 5
   * cpu.close();
   * ```
   */
  trace(this: Tensor): Tensor {
    requireRanks("trace", [this], [2], "a matrix");
    return diagonalView(this, 0, 1).sum();
  },
};

function requireRanks(op: string, tensors: readonly Tensor[], ranks: readonly number[], what: string): void {
  if (tensors.every(({ ndim }, index) => ndim === ranks[index])) return;
  throw misfit(op, tensors, `it takes ${what}.`);
}

function misfit(op: string, tensors: readonly Tensor[], why: string): HoldfastError {
  const shapes = tensors.map(({ shape }) => formatShape(shape)).join(" and ");
  return new HoldfastError("BAD_SHAPE", `${op} of ${shapes}: ${why}`, { numbers: { op } });
}
