/** Sorting and order statistics as methods of tensors. */

import { noGrad } from "../../autograd/index.js";
import { checkOptions, HoldfastError, type OptionNames } from "../../errors/index.js";
import { axisOf, sort } from "../../ops/index.js";
import { arange } from "../creation.js";
import { cat } from "../functions.js";
import type { Tensor } from "../tensor.js";
import type { Extremes } from "./extremes.js";
import type { ReductionOptions } from "./reduction.js";
import { reductionOptionNames } from "./reduction.js";

export interface SortOptions {
  /** From the largest to the smallest. Default: false. */
  readonly descending?: boolean;
  /** Has no effect: equal elements always keep their order. */
  readonly stable?: boolean;
}

const sortOptionNames: OptionNames<SortOptions> = { descending: true, stable: true };

export const sortingMethods = {
  /**
   * The elements along an axis (default: the last) in ascending order, and their indices. Equal elements keep their order; NaN counts as
   * the largest number.
   *
   * @example
   * ```ts
   * import { device, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * const { values, indices } = tensor([3, 1, 2]).sort();
   * console.log(values.tolist(), indices.tolist()); // → [ 1, 2, 3 ] [ 1, 2, 0 ]
   * cpu.close();
   * ```
   */
  sort(this: Tensor, axis = -1, options: SortOptions = {}): Extremes {
    const { descending = false } = checkOptions("sort", options, sortOptionNames);
    const [values, indices] = this.device.applyAll(sort, [this], { axis, isDescending: descending });
    if (values && indices) return { values, indices };
    throw new HoldfastError("BAD_ARGUMENT", "sort has no result.");
  },
  /**
   * The indices that sort an axis (default: the last), as i32.
   *
   * @example
   * ```ts
   * import { device, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * console.log(tensor([3, 1, 2]).argsort().tolist()); // → [ 1, 2, 0 ]
   * cpu.close();
   * ```
   */
  argsort(this: Tensor, axis = -1, options: SortOptions = {}): Tensor {
    checkOptions("argsort", options, sortOptionNames);
    return this.detach().sort(axis, options).indices;
  },
  /**
   * `sort` along the first axis, without the indices.
   *
   * @example
   * ```ts
   * import { device, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * console.log(tensor([[2, 1], [1, 3]]).msort().tolist()); // → [ [ 1, 1 ], [ 2, 3 ] ]
   * cpu.close();
   * ```
   */
  msort(this: Tensor): Tensor {
    return this.sort(0).values;
  },
  /**
   * The k largest elements along an axis (default: the last), in descending order, and their indices. With `largest: false`, the k smallest
   * elements, in ascending order.
   *
   * @example
   * ```ts
   * import { device, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * const { values, indices } = tensor([3, 9, 5]).topk(2);
   * console.log(values.tolist(), indices.tolist()); // → [ 9, 5 ] [ 1, 2 ]
   * cpu.close();
   * ```
   */
  topk(this: Tensor, k: number, axis = -1, options: { readonly largest?: boolean } = {}): Extremes {
    const { largest = true } = checkOptions("topk", options, { largest: true });
    const sorted = this.sort(axis, { descending: largest });
    const size = this.shape[this.ndim === 0 ? 0 : axisOf("topk", axis, this.ndim)] ?? 1;
    if (!Number.isInteger(k) || k < 0 || k > size) {
      throw new HoldfastError(
        "BAD_ARGUMENT",
        `topk: k is ${k}, but axis ${axis} has ${size} elements. Pass a whole number from 0 to ${size}.`,
      );
    }
    if (this.ndim === 0) return sorted;
    return { values: sorted.values.narrow(axis, 0, k), indices: sorted.indices.narrow(axis, 0, k) };
  },
  /**
   * The k-th smallest element along an axis (default: the last) and its index; k counts from 1.
   *
   * @example
   * ```ts
   * import { device, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * const { values, indices } = tensor([3, 9, 5]).kthvalue(2);
   * console.log(values.item(), indices.item()); // → 5 2
   * cpu.close();
   * ```
   */
  kthvalue(this: Tensor, k: number, axis = -1, options: ReductionOptions = {}): Extremes {
    const { keepdim = false } = checkOptions("kthvalue", options, reductionOptionNames);
    const size = this.shape[this.ndim === 0 ? 0 : axisOf("kthvalue", axis, this.ndim)] ?? 1;
    if (!Number.isInteger(k) || k < 1 || k > size) {
      throw new HoldfastError(
        "BAD_ARGUMENT",
        `kthvalue: k is ${k}, but axis ${axis} has ${size} elements. Pass a whole number from 1 to ${size}.`,
      );
    }
    const { values, indices } = this.sort(axis);
    if (this.ndim === 0) return { values, indices };
    const [value, index] = [values.narrow(axis, k - 1, 1), indices.narrow(axis, k - 1, 1)];
    return keepdim
      ? { values: value, indices: index }
      : { values: value.squeeze(axis), indices: index.squeeze(axis) };
  },
  /**
   * The most frequent element along an axis (default: the last), and its last index. If several are equally frequent, the smallest one.
   *
   * @example
   * ```ts
   * import { device, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * const { values, indices } = tensor([2, 1, 2]).mode();
   * console.log(values.item(), indices.item()); // → 2 2
   * cpu.close();
   * ```
   */
  mode(this: Tensor, axis = -1, options: ReductionOptions = {}): Extremes {
    const { keepdim = false } = checkOptions("mode", options, reductionOptionNames);
    const indices = noGrad(() => {
      const sorted = this.detach().sort(axis);
      const along = axisOf("mode", axis, this.ndim);
      const size = this.shape[along] ?? 0;
      const position = arange(size, undefined, 1, { device: this.device }).reshape(
        this.shape.map((_, at) => (at === along ? -1 : 1)),
      );
      const isNew = cat(
        [
          sorted.values.narrow(along, 0, 1).eq(sorted.values.narrow(along, 0, 1)),
          sorted.values.diff(1, along).ne(0),
        ],
        along,
      );
      const start = position.expand(this.shape).where(isNew, 0).cummax(along).values;
      const longest = position.sub(start).argmax(along, { keepdim: true });
      return sorted.indices.gather(along, longest);
    });
    const values = this.gather(axis, indices);
    return keepdim ? { values, indices } : { values: values.squeeze(axis), indices: indices.squeeze(axis) };
  },
};
