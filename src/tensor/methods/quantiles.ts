/** Medians and quantiles as methods of tensors. */

import { checkOptions, HoldfastError, type OptionNames } from "../../errors/index.js";
import { axisOf, formatShape } from "../../ops/index.js";
import { stack } from "../functions.js";
import type { Tensor } from "../tensor.js";
import type { ExtremeMethod, Extremes } from "./extremes.js";
import { type ReductionOptions, reductionOptionNames } from "./reduction.js";

/** The options of `quantile`. */
export interface QuantileOptions extends ReductionOptions {
  /** The value of a quantile that lies between two elements. Default: "linear". */
  readonly interpolation?: "linear" | "lower" | "higher" | "midpoint" | "nearest";
}

const quantileOptionNames: OptionNames<QuantileOptions> = { interpolation: true, keepdim: true };

/** The rank of the median, given the numbers in each row that are not NaN (they come first), and the length of a row. */
type MedianRank = (count: Tensor, length: number) => Tensor;

/** The first NaN if there is one. */
const rankWithNan: MedianRank = (count, length) =>
  count.where(count.lt(length), Math.floor((length - 1) / 2));
const rankWithoutNan: MedianRank = (count) => count.sub(1).floorDivide(2).clampMin(0);

function medianMethod(rankOf: MedianRank): ExtremeMethod {
  function method(this: Tensor): Tensor;
  function method(this: Tensor, axis: number, options?: ReductionOptions): Extremes;
  function method(this: Tensor, axis?: number, options: ReductionOptions = {}): Tensor | Extremes {
    const { keepdim = false } = checkOptions("median", options, reductionOptionNames);
    if (axis === undefined) {
      if (this.numel === 0) return this.newFull([], Number.NaN);
      const value = median(this.flatten(), 0).values.squeeze(0);
      return this.requiresGrad ? sharedByTies(this, value.detach()) : value;
    }
    const { values, indices } = median(this, axis);
    return keepdim ? { values, indices } : { values: values.squeeze(axis), indices: indices.squeeze(axis) };
  }
  function median(x: Tensor, axis: number): Extremes {
    const { values, indices } = x.sort(axis);
    const count = x.detach().isnan().logicalNot().sum(axis, { keepdim: true });
    const length = x.shape[axisOf("median", axis, x.ndim)] ?? 0;
    if (length === 0) {
      throw new HoldfastError(
        "BAD_SHAPE",
        `median: axis ${axis} of ${formatShape(x.shape)} has no elements, and so no median.`,
      );
    }
    const rank = rankOf(count, length);
    return { values: values.gather(axis, rank), indices: indices.gather(axis, rank) };
  }
  return method;
}

/** The median as a maximum of the same value, so that all equal elements share its gradient, as in PyTorch. */
function sharedByTies(x: Tensor, median: Tensor): Tensor {
  const isCounted = x.detach().le(median).logicalOr(median.isnan());
  return x.where(isCounted, Number.NEGATIVE_INFINITY).amax();
}

function quantiles(
  x: Tensor,
  q: number | readonly number[],
  axis: number | undefined,
  { keepdim = false, interpolation = "linear" }: QuantileOptions,
  ignoresNan: boolean,
): Tensor {
  const list = typeof q === "number" ? [q] : q;
  if (!list.every((fraction) => fraction >= 0 && fraction <= 1)) {
    throw new HoldfastError("BAD_ARGUMENT", `quantile: q is ${list.join(", ")}. Pass numbers from 0 to 1.`);
  }
  const along = axis === undefined ? 0 : axisOf("quantile", axis, x.ndim);
  const flat = axis === undefined ? x.flatten() : x;
  const { values } = flat.sort(along);
  const length = flat.shape[along] ?? 0;
  const numbers = flat.detach().isnan().logicalNot().sum(along, { keepdim: true });
  const hasNan = numbers.lt(ignoresNan ? 1 : length);
  const results = list.map((fraction) => {
    const rank = numbers.sub(1).clampMin(0).to("f64").mul(fraction);
    const at = (index: Tensor): Tensor => values.gather(along, index.to("i32"));
    const value = interpolate(rank, at, interpolation).where(hasNan.logicalNot(), Number.NaN);
    const kept = axis === undefined && keepdim ? value.reshape(x.shape.map(() => 1)) : value;
    return keepdim ? kept : value.squeeze(along);
  });
  const [first] = results;
  return typeof q === "number" && first ? first : stack(results, 0);
}

function interpolate(
  rank: Tensor,
  at: (index: Tensor) => Tensor,
  interpolation: NonNullable<QuantileOptions["interpolation"]>,
): Tensor {
  if (interpolation === "nearest") return at(rank.round());
  const lower = at(rank.floor());
  if (interpolation === "lower") return lower;
  const higher = at(rank.ceil());
  if (interpolation === "higher") return higher;
  return lower.lerp(higher, interpolation === "midpoint" ? 0.5 : rank.sub(rank.floor()).to(lower.dtype));
}

export const quantileMethods = {
  /**
   * The median along an axis, and its index. Without an axis, the median of all elements. Of two middle elements it is the lower one. It is NaN
   * if an element is NaN.
   *
   * @example
   * ```ts
   * import { device, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * console.log(tensor([3, 1, 4, 2]).median().item()); // → 2
   * console.log(tensor([[3, 1, 2]]).median(1).indices.tolist()); // → [ 2 ]
   * cpu.close();
   * ```
   */
  median: medianMethod(rankWithNan),
  /**
   * `median` of the elements that are not NaN.
   *
   * @example
   * ```ts
   * import { device, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * console.log(tensor([3, NaN, 1]).nanmedian().item()); // → 1
   * cpu.close();
   * ```
   */
  nanmedian: medianMethod(rankWithoutNan),
  /**
   * The q-quantile along an axis, or of all elements. For a list of q, the result has a new first axis. It is NaN if an element is NaN.
   *
   * @example
   * ```ts
   * import { device, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * console.log(tensor([1, 2, 3, 4]).quantile([0, 0.5]).tolist()); // → [ 1, 2.5 ]
   * cpu.close();
   * ```
   */
  quantile(
    this: Tensor,
    q: number | readonly number[],
    axis?: number,
    options: QuantileOptions = {},
  ): Tensor {
    checkOptions("quantile", options, quantileOptionNames);
    return quantiles(this, q, axis, options, false);
  },
  /**
   * `quantile` of the elements that are not NaN.
   *
   * @example
   * ```ts
   * import { device, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * console.log(tensor([1, NaN, 3]).nanquantile(0.5).item()); // → 2
   * cpu.close();
   * ```
   */
  nanquantile(
    this: Tensor,
    q: number | readonly number[],
    axis?: number,
    options: QuantileOptions = {},
  ): Tensor {
    checkOptions("nanquantile", options, quantileOptionNames);
    return quantiles(this, q, axis, options, true);
  },
};
