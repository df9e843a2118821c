/** Selections whose size depends on the values, as methods of tensors. They read from the device. */

import { checkOptions, HoldfastError } from "../../errors/index.js";
import { broadcastShapes } from "../../ops/index.js";
import { fromTyped, linspace, onesLike, zeros } from "../creation.js";
import { cat } from "../functions.js";
import { bucketize } from "../searching.js";
import type { Tensor } from "../tensor.js";

/** The result of `unique`. */
export interface Unique {
  readonly values: Tensor;
  /** For each element its position in `values`: i32. */
  readonly inverse: Tensor;
  /** How often each value occurs: i32. */
  readonly counts: Tensor;
}

/** The options of `histogram`. */
export interface HistogramOptions {
  /** The ends of the intervals, if their number is given. Default: the smallest and the largest element. */
  readonly range?: readonly [number, number];
  /** The weight of each element. Default: 1. */
  readonly weight?: Tensor;
  /** Divide by the total and by the widths, so that the integral is 1. Default: false. */
  readonly density?: boolean;
}

/** The result of `histogram`. */
export interface Histogram {
  readonly hist: Tensor;
  /** One more than there are intervals. */
  readonly binEdges: Tensor;
}

/** An empty range is widened, as in PyTorch. */
function equalEdges(x: Tensor, bins: number, range: readonly [number, number] | undefined): Tensor {
  let [low, high] = range ?? (x.numel === 0 ? [0, 0] : [x.min().item(), x.max().item()]);
  if (low === high) [low, high] = [low - 0.5, high + 0.5];
  const { dtype, device } = x;
  return linspace(low, high, Number.isInteger(bins) ? Math.max(0, bins) + 1 : 0, { dtype, device });
}

/** The positions of true elements in row-major order. */
function placesOf(mask: Tensor): Int32Array<ArrayBuffer> {
  const places: number[] = [];
  for (const [place, isTrue] of mask.ne(0).dataSync().entries()) if (isTrue) places.push(place);
  return Int32Array.from(places);
}

/** The runs of equal elements of a vector. */
function runsOf(x: Tensor): Unique {
  const isFirst =
    x.numel === 0
      ? x.ne(x)
      : cat([
          x
            .narrow(0, 0, 1)
            .eq(x.narrow(0, 0, 1))
            .logicalOr(1),
          x.narrow(0, 1, x.numel - 1).ne(x.narrow(0, 0, x.numel - 1)),
        ]);
  const starts = placesOf(isFirst);
  const counts = starts.map((start, run) => (starts[run + 1] ?? x.numel) - start);
  const [index, lengths] = [starts, counts].map((list) =>
    fromTyped(list, [list.length], { device: x.device }),
  );
  const values = index ? x.indexSelect(0, index) : x;
  return { values, inverse: isFirst.cumsum(0).sub(1), counts: lengths ?? x };
}

export const maskMethods = {
  /**
   * The indices of all elements that are not 0, as rows: i32 [count, axes]. Reads the elements back, so a compiled step rejects it.
   *
   * @example
   * ```ts
   * import { device, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * console.log(tensor([[0, 1], [2, 0]]).nonzero().tolist()); // → [ [ 0, 1 ], [ 1, 0 ] ]
   * cpu.close();
   * ```
   */
  nonzero(this: Tensor): Tensor {
    const places = placesOf(this.ne(0));
    const axes = this.shape.length;
    const rows = new Int32Array(places.length * axes);
    for (const [row, place] of places.entries()) {
      let rest = place;
      for (let axis = axes - 1; axis >= 0; axis--) {
        const size = this.shape[axis] ?? 1;
        rows[row * axes + axis] = rest % size;
        rest = Math.floor(rest / size);
      }
    }
    return fromTyped(rows, [places.length, axes], { device: this.device });
  },
  /**
   * `nonzero` by its other name.
   *
   * @example
   * ```ts
   * import { device, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * console.log(tensor([0, 5]).argwhere().tolist()); // → [ [ 1 ] ]
   * cpu.close();
   * ```
   */
  argwhere(this: Tensor): Tensor {
    return this.nonzero();
  },
  /**
   * The elements where a mask is true, as a vector. Reads the mask back, so a compiled step rejects it: `where` keeps the shape.
   *
   * @example
   * ```ts
   * import { device, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * const x = tensor([1, -2, 3]);
   * console.log(x.maskedSelect(x.gt(0)).tolist()); // → [ 1, 3 ]
   * cpu.close();
   * ```
   */
  maskedSelect(this: Tensor, mask: Tensor): Tensor {
    const shape = broadcastShapes("maskedSelect", [this.shape, mask.shape]);
    const places = placesOf(mask.expand(shape));
    const index = fromTyped(places, [places.length], { device: this.device });
    return this.expand(shape).flatten().indexSelect(0, index);
  },
  /**
   * The different elements in ascending order, the position of each element among them, and how often each occurs. Reads back where
   * the runs of equal elements begin, so a compiled step rejects it.
   *
   * @example
   * ```ts
   * import { device, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * const { values, counts } = tensor([3, 1, 3]).unique();
   * console.log(values.tolist(), counts.tolist()); // → [ 1, 3 ] [ 1, 2 ]
   * cpu.close();
   * ```
   */
  unique(this: Tensor): Unique {
    const { values, indices } = this.detach().flatten().sort();
    const runs = runsOf(values);
    const inverse = zeros([this.numel], { dtype: "i32", device: this.device }).scatterAdd(
      0,
      indices,
      runs.inverse,
    );
    return { ...runs, inverse: inverse.reshape(this.shape) };
  },
  /**
   * The first element of every run of equal ones, the run of each element, and the lengths of the runs. Reads back where runs begin.
   *
   * @example
   * ```ts
   * import { device, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * console.log(tensor([1, 1, 2, 1]).uniqueConsecutive().values.tolist()); // → [ 1, 2, 1 ]
   * cpu.close();
   * ```
   */
  uniqueConsecutive(this: Tensor): Unique {
    const runs = runsOf(this.detach().flatten());
    return { ...runs, inverse: runs.inverse.reshape(this.shape) };
  },
  /**
   * How often each whole number occurs in a vector, or the sum of its weights. Reads the largest number back.
   *
   * @example
   * ```ts
   * import { device, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * console.log(tensor([1, 3, 1], { dtype: "i32" }).bincount().tolist()); // → [ 0, 2, 0, 1 ]
   * cpu.close();
   * ```
   */
  bincount(this: Tensor, options: { readonly weights?: Tensor; readonly minLength?: number } = {}): Tensor {
    const { weights, minLength = 0 } = checkOptions("bincount", options, { weights: true, minLength: true });
    const size = Math.max(minLength, this.numel === 0 ? 0 : this.max().item() + 1);
    const amounts = weights ?? onesLike(this, { dtype: "i32" });
    return zeros([size], { dtype: amounts.dtype, device: this.device }).scatterAdd(0, this, amounts);
  },
  /**
   * The numbers of elements in intervals, or the sums of their weights: between ascending edges, or in a number of equal intervals of a range.
   * The default range, from the smallest element to the largest, is read back. The last interval has both of its ends.
   *
   * @example
   * ```ts
   * import { device, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * const { hist, binEdges } = tensor([1, 2, 1, 4]).histogram(3);
   * console.log(hist.tolist(), binEdges.tolist()); // → [ 2, 1, 1 ] [ 1, 2, 3, 4 ]
   * cpu.close();
   * ```
   */
  histogram(this: Tensor, bins: number | Tensor, options: HistogramOptions = {}): Histogram {
    const {
      range,
      weight,
      density = false,
    } = checkOptions("histogram", options, { range: true, weight: true, density: true });
    const x = this.detach().flatten();
    const binEdges = typeof bins === "number" ? equalEdges(x, bins, range) : bins.detach().to(x.dtype);
    const count = binEdges.numel - 1;
    if (binEdges.ndim !== 1 || count < 1) {
      throw new HoldfastError(
        "BAD_ARGUMENT",
        "histogram: pass a number of intervals, 1 or more, or a vector of two or more ascending edges.",
      );
    }
    // Rounding may move the last edge of equal intervals below the largest element.
    const high = typeof bins === "number" ? (range?.[1] ?? Number.POSITIVE_INFINITY) : binEdges.select(0, -1);
    const isInside = x.ge(binEdges.select(0, 0)).logicalAnd(x.le(high));
    const bin = bucketize(x, binEdges, { right: true })
      .sub(1)
      .clamp(0, count - 1);
    const amounts = weight ? weight.detach().to(x.dtype).flatten() : onesLike(x);
    const counts = zeros([count], { dtype: x.dtype, device: x.device });
    const hist = counts.scatterAdd(0, bin, amounts.where(isInside, 0));
    return { hist: density ? hist.div(hist.sum()).div(binEdges.diff()) : hist, binEdges };
  },
  /**
   * The numbers of elements in `bins` equal intervals from `min` to `max`; default: from the smallest element to the largest, which are
   * read back.
   *
   * @example
   * ```ts
   * import { device, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * console.log(tensor([1, 2, 1, 4]).histc(4, 1, 5).tolist()); // → [ 2, 1, 0, 1 ]
   * cpu.close();
   * ```
   */
  histc(this: Tensor, bins = 100, min = 0, max = 0): Tensor {
    const x = this.detach().flatten();
    let [low, high] = min === 0 && max === 0 ? [x.min().item(), x.max().item()] : [min, max];
    if (low === high) [low, high] = [low - 1, high + 1];
    const isInside = x.ge(low).logicalAnd(x.le(high));
    const bin = x
      .sub(low)
      .mul(bins / (high - low))
      .where(isInside, 0)
      .floor()
      .clamp(0, bins - 1)
      .to("i32");
    return zeros([bins], { dtype: x.dtype, device: x.device }).scatterAdd(0, bin, isInside.to(x.dtype));
  },
};
