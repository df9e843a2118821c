/** Binary searches in sorted tensors, and membership. */

import { noGrad } from "../autograd/index.js";
import { checkOptions, HoldfastError, type OptionNames } from "../errors/index.js";
import { formatShape, isSameShape } from "../ops/index.js";
import { full } from "./creation.js";
import type { Tensor } from "./tensor.js";

/** The options of `searchsorted` and `bucketize`. */
export interface SearchOptions {
  /** The position after equal elements, not before them. Default: false. */
  readonly right?: boolean;
}

const searchOptionNames: OptionNames<SearchOptions> = { right: true };

/**
 * Where values would be inserted in an ascending last axis: i32. A sorted vector serves values of any shape; otherwise the other axes are
 * equal.
 *
 * @example
 * ```ts
 * import { device, searchsorted, tensor } from "holdfast";
 * const cpu = await device("cpu");
 * console.log(searchsorted(tensor([1, 3, 5]), tensor([3, 9])).tolist()); // → [ 1, 3 ]
 * cpu.close();
 * ```
 */
export function searchsorted(sorted: Tensor, values: Tensor | number, options: SearchOptions = {}): Tensor {
  const { right = false } = checkOptions("searchsorted", options, searchOptionNames);
  if (typeof values === "number") return searchsorted(sorted, sorted.newTensor(values), { right });
  const isVector = sorted.ndim === 1;
  if (!isVector && !isSameShape(sorted.shape.slice(0, -1), values.shape.slice(0, -1))) {
    throw new HoldfastError(
      "BAD_SHAPE",
      `searchsorted in ${formatShape(sorted.shape)} of values ${formatShape(values.shape)}: all axes but the last one must be equal.`,
    );
  }
  return noGrad(() => {
    const size = sorted.shape.at(-1) ?? 0;
    const elementsAt = (index: Tensor): Tensor =>
      isVector ? sorted.indexSelect(0, index.flatten()).reshape(index.shape) : sorted.gather(-1, index);
    let low = full(values.shape, 0, { dtype: "i32", device: values.device });
    let high = low.add(size);
    for (let width = size; width > 0; width = Math.floor(width / 2)) {
      const middle = low.add(high).bitwiseRightShift(1);
      const element = elementsAt(middle.clamp(0, size - 1));
      const isBefore = (right ? element.le(values) : element.lt(values)).logicalAnd(low.lt(high));
      high = high.where(isBefore, middle);
      low = middle.add(1).where(isBefore, low);
    }
    return low;
  });
}

/**
 * The bucket of each value: `searchsorted` in a vector of boundaries.
 *
 * @example
 * ```ts
 * import { bucketize, device, tensor } from "holdfast";
 * const cpu = await device("cpu");
 * console.log(bucketize(tensor([0, 2, 9]), tensor([1, 3])).tolist()); // → [ 0, 1, 2 ]
 * cpu.close();
 * ```
 */
export function bucketize(values: Tensor | number, boundaries: Tensor, options: SearchOptions = {}): Tensor {
  checkOptions("bucketize", options, searchOptionNames);
  return searchsorted(boundaries, values, options);
}

/**
 * True for each element that is one of the test elements.
 *
 * @example
 * ```ts
 * import { device, isin, tensor } from "holdfast";
 * const cpu = await device("cpu");
 * console.log(isin(tensor([1, 2, 3]), tensor([3, 1])).tolist()); // → [ true, false, true ]
 * cpu.close();
 * ```
 */
export function isin(
  elements: Tensor,
  testElements: Tensor,
  options: { readonly invert?: boolean } = {},
): Tensor {
  const { invert = false } = checkOptions("isin", options, { invert: true });
  if (testElements.numel === 0)
    return elements
      .ne(elements)
      .logicalAnd(0)
      .eq(invert ? 0 : 1);
  const { values } = testElements.detach().flatten().sort();
  const place = searchsorted(values, elements).clamp(0, values.numel - 1);
  const found = values.indexSelect(0, place.flatten()).reshape(elements.shape);
  return invert ? found.ne(elements) : found.eq(elements);
}
