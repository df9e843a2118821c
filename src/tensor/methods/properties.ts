/** Properties of tensors, and new tensors like them, as methods. */

import { dtypes, isFloat8 } from "../../ir/index.js";
import { axisOf, type Shape } from "../../ops/index.js";
import { full, tensor } from "../creation.js";
import type { NestedArray } from "../format/nested.js";
import type { Tensor } from "../tensor.js";

export const propertyMethods = {
  /**
   * The distance of neighbouring elements along an axis in memory, in elements, or of all axes.
   *
   * @example
   * ```ts
   * import { device, zeros } from "holdfast";
   * const cpu = await device("cpu");
   * console.log(zeros([2, 3]).stride(), zeros([2, 3]).t().stride(0)); // → [ 3, 1 ] 1
   * cpu.close();
   * ```
   */
  stride(this: Tensor, axis?: number): number[] | number {
    const { strides } = this.array;
    return axis === undefined ? [...strides] : (strides[axisOf("stride", axis, this.ndim)] ?? 0);
  },
  /**
   * The bytes of an element.
   *
   * @example
   * ```ts
   * import { device, zeros } from "holdfast";
   * const cpu = await device("cpu");
   * console.log(zeros([2], { dtype: "bf16" }).elementSize()); // → 2
   * cpu.close();
   * ```
   */
  elementSize(this: Tensor): number {
    return dtypes[this.dtype].bytes;
  },
  /**
   * True if the dtype is a float, also one of 8 bits.
   *
   * @example
   * ```ts
   * import { device, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * console.log(tensor([1]).isFloatingPoint(), tensor([true]).isFloatingPoint()); // → true false
   * cpu.close();
   * ```
   */
  isFloatingPoint(this: Tensor): boolean {
    return dtypes[this.dtype].kind === "float" || isFloat8(this.dtype);
  },
  /**
   * True if the only element is not 0. Reads it back.
   *
   * @example
   * ```ts
   * import { device, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * console.log(tensor(0.5).isNonzero(), tensor([0]).isNonzero()); // → true false
   * cpu.close();
   * ```
   */
  isNonzero(this: Tensor): boolean {
    return this.item() !== 0;
  },
  /**
   * A tensor of other data with the dtype and device of this one.
   *
   * @example
   * ```ts
   * import { device, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * console.log(tensor([1], { dtype: "i32" }).newTensor([2, 3]).dtype); // → i32
   * cpu.close();
   * ```
   */
  newTensor(this: Tensor, data: NestedArray): Tensor {
    return tensor(data, { dtype: this.dtype, device: this.device });
  },
  /**
   * A tensor of one value with the dtype and device of this one.
   *
   * @example
   * ```ts
   * import { device, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * console.log(tensor([1], { dtype: "i32" }).newFull([2], 7).tolist()); // → [ 7, 7 ]
   * cpu.close();
   * ```
   */
  newFull(this: Tensor, shape: Shape, value: number): Tensor {
    return full(shape, value, { dtype: this.dtype, device: this.device });
  },
  /**
   * Zeros with the dtype and device of this tensor.
   *
   * @example
   * ```ts
   * import { device, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * console.log(tensor([true]).newZeros([2]).tolist()); // → [ false, false ]
   * cpu.close();
   * ```
   */
  newZeros(this: Tensor, shape: Shape): Tensor {
    return this.newFull(shape, 0);
  },
  /**
   * Ones with the dtype and device of this tensor.
   *
   * @example
   * ```ts
   * import { device, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * console.log(tensor([1], { dtype: "u8" }).newOnes([2]).tolist()); // → [ 1, 1 ]
   * cpu.close();
   * ```
   */
  newOnes(this: Tensor, shape: Shape): Tensor {
    return this.newFull(shape, 1);
  },
  /**
   * A tensor with the dtype and device of this one, to be written: its elements are 0.
   *
   * @example
   * ```ts
   * import { device, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * console.log(tensor([1]).newEmpty([2, 3]).shape); // → [ 2, 3 ]
   * cpu.close();
   * ```
   */
  newEmpty(this: Tensor, shape: Shape): Tensor {
    return this.newFull(shape, 0);
  },
};
