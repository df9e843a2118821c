/** Parts of a tensor as methods: ranges, single indices, pieces. All are views. */

import { HoldfastError } from "../../errors/index.js";
import { axisOf, formatShape, type Range, select, slice } from "../../ops/index.js";
import type { Tensor } from "../tensor.js";

export const partMethods = {
  /**
   * A part, one range an axis: `[start, end, step]` with Python's rules (negative places count from the end, what lies
   * outside is cut off, steps are 1 or more), `null` for a whole axis, or a number, which takes one index and drops the
   * axis. A view: writing to it in place writes to the tensor.
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
    const taken = ranges.map((range) => (typeof range === "number" ? null : range));
    const isWhole = ranges.length <= this.ndim && taken.every((range) => range === null);
    const part: Tensor = isWhole ? this : this.device.apply(slice, [this], { ranges: taken });
    // From the last axis on, so that the places of those before don't move.
    return ranges.reduceRight<Tensor>(
      (seen, range, axis) => (typeof range === "number" ? seen.select(axis, range) : seen),
      part,
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
    const place = axisOf("narrow", axis, this.ndim);
    const size = this.shape[place] ?? 0;
    const from = start < 0 ? start + size : start;
    if (![from, length].every(Number.isInteger) || from < 0 || length < 0 || from + length > size) {
      throw new HoldfastError(
        "BAD_INDEX",
        `narrow: ${length} indices from ${start} on, of axis ${place} of ${formatShape(this.shape)}, which has ${size}.`,
      );
    }
    return takeRange(this, place, from, from + length);
  },
  /**
   * One index of an axis, which is gone from the result; a view.
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
   * Parts of the given sizes along an axis, or of one size and a smaller last one; views.
   *
   * @example
   * ```ts
   * import { arange, device } from "holdfast";
   * const cpu = await device("cpu");
   * const x = arange(5);
   * console.log(x.split(2).map((part) => part.tolist())); // → [ [ 0, 1 ], [ 2, 3 ], [ 4 ] ]
   * console.log(x.split([1, 4]).map((part) => part.shape)); // → [ [ 1 ], [ 4 ] ]
   * cpu.close();
   * ```
   */
  split(this: Tensor, sizes: number | readonly number[], axis = 0): Tensor[] {
    const place = axisOf("split", axis, this.ndim);
    const length = this.shape[place] ?? 0;
    const parts = typeof sizes === "number" ? equalParts(length, sizes) : sizes;
    const total = parts.reduce((sum, size) => sum + size, 0);
    if (total !== length || !parts.every((size) => Number.isInteger(size) && size >= 0)) {
      throw new HoldfastError(
        "BAD_SHAPE",
        `split: sizes ${formatShape(parts)} of axis ${place} of ${formatShape(this.shape)}; they have to add up to ${length}.`,
      );
    }
    let start = 0;
    return parts.map((size) => {
      start += size;
      return takeRange(this, place, start - size, start);
    });
  },
  /**
   * At most so many parts along an axis, all of one size but the last; views.
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
      throw new HoldfastError("BAD_ARGUMENT", `chunk: ${chunks} parts; pass a whole number, 1 or more.`);
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

function equalParts(length: number, size: number): number[] {
  if (!Number.isInteger(size) || size < 1) {
    throw new HoldfastError("BAD_SHAPE", `split: parts of ${size}; pass a whole number, 1 or more.`);
  }
  const count = Math.max(1, Math.ceil(length / size));
  return Array.from({ length: count }, (_, part) => Math.min(size, length - part * size));
}
