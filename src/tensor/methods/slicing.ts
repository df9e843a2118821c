/** Slices of a tensor as methods: ranges, single indices, chunks. All are views. */

import { HoldfastError } from "../../errors/index.js";
import { axisOf, formatShape, type Range, select, slice } from "../../ops/index.js";
import type { Tensor } from "../tensor.js";

/** The chunks of `split`: one for each size of a list, or any number of one size. */
export type Chunks<S extends number | readonly number[]> = S extends readonly number[]
  ? { -readonly [Index in keyof S]: Tensor }
  : Tensor[];

export const slicingMethods = {
  /**
   * A slice with one range per axis. A range is `[start, end, step]` with Python's rules: negative indices count from the end,
   * bounds are clamped, and steps are 1 or more. `null` takes a whole axis, and a number takes one index and drops the axis.
   * A view: writing to it in place writes to the tensor.
   *
   * @example
   * ```ts
   * import { arange, device } from "holdfast";
   * const cpu = await device("cpu");
   * const x = arange(12).reshape([3, 4]);
   * console.log(x.slice([0, 2], [1, null, 2]).tolist()); // → [ [ 1, 3 ], [ 5, 7 ] ]
   * console.log(x.slice(null, -1).tolist()); // → [ 3, 7, 11 ]
   * cpu.close();
   * ```
   */
  slice(this: Tensor, ...ranges: readonly (Range | number)[]): Tensor {
    const axisRanges = ranges.map((range) => (typeof range === "number" ? null : range));
    const isWhole = ranges.length <= this.ndim && axisRanges.every((range) => range === null);
    const sliced: Tensor = isWhole ? this : this.device.apply(slice, [this], { ranges: axisRanges });
    // Starts with the last axis, so that the numbers of earlier axes do not change.
    return ranges.reduceRight<Tensor>(
      (view, range, axis) => (typeof range === "number" ? view.select(axis, range) : view),
      sliced,
    );
  },
  /**
   * `length` indices of an axis, from `start` on; a view.
   *
   * @example
   * ```ts
   * import { arange, device } from "holdfast";
   * const cpu = await device("cpu");
   * console.log(arange(6).narrow(0, -3, 2).tolist()); // → [ 3, 4 ]
   * cpu.close();
   * ```
   */
  narrow(this: Tensor, axis: number, start: number, length: number): Tensor {
    const index = axisOf("narrow", axis, this.ndim);
    const size = this.shape[index] ?? 0;
    const from = start < 0 ? start + size : start;
    if (![from, length].every(Number.isInteger) || from < 0 || length < 0 || from + length > size) {
      throw new HoldfastError(
        "BAD_INDEX",
        `narrow: ${length} indices from ${start} on, of axis ${index} of ${formatShape(this.shape)}, which has ${size}.`,
      );
    }
    return takeRange(this, index, from, from + length);
  },
  /**
   * One index of an axis. The result does not have that axis; a view.
   *
   * @example
   * ```ts
   * import { device, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * const x = tensor([[1, 2], [3, 4]]);
   * console.log(x.select(0, -1).tolist(), x.select(1, 0).tolist()); // → [ 3, 4 ] [ 1, 3 ]
   * cpu.close();
   * ```
   */
  select(this: Tensor, axis: number, index: number): Tensor {
    return this.device.apply(select, [this], { axis, index });
  },
  /**
   * Splits an axis into chunks of these sizes. One number is the size of every chunk; the last one may be smaller. Views. The type of the
   * result has as many chunks as there are sizes.
   *
   * @example
   * ```ts
   * import { arange, device } from "holdfast";
   * const cpu = await device("cpu");
   * const x = arange(5);
   * console.log(x.split(2).map((chunk) => chunk.tolist())); // → [ [ 0, 1 ], [ 2, 3 ], [ 4 ] ]
   * const [head, tail] = x.split([1, 4]);
   * console.log(head.tolist(), tail.shape); // → [ 0 ] [ 4 ]
   * cpu.close();
   * ```
   */
  split<const S extends number | readonly number[]>(this: Tensor, sizes: S, axis = 0): Chunks<S> {
    const index = axisOf("split", axis, this.ndim);
    const length = this.shape[index] ?? 0;
    const chunkSizes: readonly number[] = typeof sizes === "number" ? equalSizes(length, sizes) : sizes;
    const total = chunkSizes.reduce((sum, size) => sum + size, 0);
    if (total !== length || !chunkSizes.every((size) => Number.isInteger(size) && size >= 0)) {
      throw new HoldfastError(
        "BAD_SHAPE",
        `split: sizes ${formatShape(chunkSizes)} of axis ${index} of ${formatShape(this.shape)}; they must add up to ${length}.`,
      );
    }
    let start = 0;
    const chunks = chunkSizes.map((size) => {
      start += size;
      return takeRange(this, index, start - size, start);
    });
    return chunks as Chunks<S>;
  },
  /**
   * Splits an axis into at most `chunks` chunks of one size; the last one may be smaller. Views.
   *
   * @example
   * ```ts
   * import { device, ones } from "holdfast";
   * const cpu = await device("cpu");
   * const [q, k, v] = ones([4, 6]).chunk(3, -1);
   * console.log(q?.shape, k?.shape, v?.shape); // → [ 4, 2 ] [ 4, 2 ] [ 4, 2 ]
   * cpu.close();
   * ```
   */
  chunk(this: Tensor, chunks: number, axis = 0): Tensor[] {
    if (!Number.isInteger(chunks) || chunks < 1) {
      throw new HoldfastError("BAD_ARGUMENT", `chunk: ${chunks} chunks; pass a whole number, 1 or more.`);
    }
    const length = this.shape[axisOf("chunk", axis, this.ndim)] ?? 0;
    if (length === 0) return this.split(new Array<number>(chunks).fill(0), axis);
    return this.split(Math.ceil(length / chunks), axis);
  },
};

function takeRange(tensor: Tensor, axis: number, start: number, end: number): Tensor {
  const ranges: readonly Range[] = [...new Array<Range>(axis).fill(null), [start, end]];
  return tensor.device.apply(slice, [tensor], { ranges });
}

function equalSizes(length: number, size: number): number[] {
  if (!Number.isInteger(size) || size < 1) {
    throw new HoldfastError("BAD_SHAPE", `split: chunks of ${size}; pass a whole number, 1 or more.`);
  }
  const count = Math.max(1, Math.ceil(length / size));
  return Array.from({ length: count }, (_, chunk) => Math.min(size, length - chunk * size));
}
