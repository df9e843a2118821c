/** Views and movement as methods of tensors. */

import { HoldfastError } from "../../errors/index.js";
import {
  axisOf,
  expand,
  flip,
  formatShape,
  pad,
  permute,
  type Range,
  repeatInterleave,
  reshape,
  type Shape,
  select,
  slice,
  tile,
} from "../../ops/index.js";
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

  /** Two axes exchanged; a view. */
  transpose(this: Tensor, a: number, b: number): Tensor {
    const order = this.shape.map((_, axis) => axis);
    const [from, to] = [axisOf("transpose", a, this.ndim), axisOf("transpose", b, this.ndim)];
    return this.permute(order.with(from, to).with(to, from));
  },
  /** The transpose of a matrix; a vector or a number stays as it is. */
  t(this: Tensor): Tensor {
    if (this.ndim < 2) return this;
    if (this.ndim === 2) return this.transpose(0, 1);
    throw new HoldfastError(
      "BAD_SHAPE",
      `t() of shape ${formatShape(this.shape)}: it is for matrices. transpose(-2, -1) exchanges the last two axes.`,
    );
  },
  /** Axes moved to other places; the rest keep their order. A view. */
  movedim(this: Tensor, from: number | readonly number[], to: number | readonly number[]): Tensor {
    const sources = placesOf("movedim", this, from);
    const targets = placesOf("movedim", this, to);
    if (sources.length !== targets.length) {
      throw new HoldfastError(
        "BAD_SHAPE",
        `movedim from ${formatShape(sources)} to ${formatShape(targets)}: name as many places as axes.`,
      );
    }
    const rest = this.shape.flatMap((_, axis) => (sources.includes(axis) ? [] : [axis]));
    const order = this.shape.map((_, axis) => sources[targets.indexOf(axis)] ?? rest.shift() ?? -1);
    return this.permute(order);
  },
  /** Without an axis of size 1, or without all of them. One that is larger stays, as in PyTorch. A view. */
  squeeze(this: Tensor, axes?: number | readonly number[]): Tensor {
    const places = axes === undefined ? this.shape.map((_, axis) => axis) : placesOf("squeeze", this, axes);
    return this.reshape(this.shape.filter((size, axis) => size !== 1 || !places.includes(axis)));
  },
  /** With a new axis of size 1 at this place; a view. */
  unsqueeze(this: Tensor, axis: number): Tensor {
    return this.reshape(this.shape.toSpliced(axisOf("unsqueeze", axis, this.ndim + 1), 0, 1));
  },
  /** Neighbouring axes as one: all of them, unless the first and last are named. */
  flatten(this: Tensor, first = 0, last = -1): Tensor {
    if (this.ndim === 0) return this.reshape([1]);
    const [from, to] = [axisOf("flatten", first, this.ndim), axisOf("flatten", last, this.ndim)];
    const joined = this.shape.slice(from, to + 1).reduce((product, size) => product * size, 1);
    if (from <= to) return this.reshape(this.shape.toSpliced(from, to + 1 - from, joined));
    throw new HoldfastError(
      "BAD_SHAPE",
      `flatten from axis ${first} to ${last}: the first is behind the last.`,
    );
  },
  /** One axis as several; one of the sizes may be -1. */
  unflatten(this: Tensor, axis: number, sizes: Shape): Tensor {
    const place = axisOf("unflatten", axis, this.ndim);
    const size = this.shape[place] ?? 0;
    const known = sizes.filter((one) => one !== -1).reduce((product, one) => product * one, 1);
    const whole = sizes.map((one) => (one === -1 ? size / known : one));
    if (whole.every(Number.isInteger) && whole.reduce((product, one) => product * one, 1) === size) {
      return this.reshape(this.shape.toSpliced(place, 1, ...whole));
    }
    throw new HoldfastError(
      "BAD_SHAPE",
      `unflatten: axis ${axis} of ${formatShape(this.shape)} has ${size}, which is no product of ${formatShape(sizes)}.`,
    );
  },

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
    const isWhole = taken.every((range) => range === null);
    const part: Tensor = isWhole ? this : this.device.apply(slice, [this], { ranges: taken });
    // From the last axis on, so that the places of those before don't move.
    return ranges.reduceRight<Tensor>(
      (seen, range, axis) => (typeof range === "number" ? seen.select(axis, range) : seen),
      part,
    );
  },
  /** `length` indices of an axis, from `start` on; a view. */
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
  /** One index of an axis, which is gone from the result; a view. */
  select(this: Tensor, axis: number, index: number): Tensor {
    return this.device.apply(select, [this], { axis, index });
  },
  /** Parts of the given sizes along an axis, or of one size and a smaller last one; views. */
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
  /** At most so many parts along an axis, all of one size but the last; views. */
  chunk(this: Tensor, chunks: number, axis = 0): Tensor[] {
    if (!Number.isInteger(chunks) || chunks < 1) {
      throw new HoldfastError("BAD_ARGUMENT", `chunk: ${chunks} parts; give a whole number of 1 or more.`);
    }
    const length = this.shape[axisOf("chunk", axis, this.ndim)] ?? 0;
    if (length === 0) return this.split(new Array<number>(chunks).fill(0), axis);
    return this.split(Math.ceil(length / chunks), axis);
  },

  /** The elements along these axes in reverse order. */
  flip(this: Tensor, axes: number | readonly number[]): Tensor {
    return this.device.apply(flip, [this], { axes });
  },
  /**
   * A border of one value: sizes before and after each axis, from the last axis on, as in PyTorch. Negative ones crop.
   *
   * @example
   * ```ts
   * import { device, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * console.log(tensor([[1, 2]]).pad([1, 0, 0, 1], 9).tolist()); // → [ [ 9, 1, 2 ], [ 9, 9, 9 ] ]
   * cpu.close();
   * ```
   */
  pad(this: Tensor, pads: readonly number[], value = 0): Tensor {
    return this.device.apply(pad, [this], { pads, value });
  },
  /** Each element so many times, one behind the other: along an axis, or of the flattened tensor. */
  repeatInterleave(this: Tensor, repeats: number, axis?: number): Tensor {
    const seen = axis === undefined ? this.flatten() : this;
    return this.device.apply(repeatInterleave, [seen], { repeats, axis: axis ?? 0 });
  },
  /** The whole several times along each axis; aligned at the last ones. */
  tile(this: Tensor, repeats: readonly number[]): Tensor {
    return this.device.apply(tile, [this], { repeats });
  },
};

function placesOf(op: string, tensor: Tensor, axes: number | readonly number[]): number[] {
  return (typeof axes === "number" ? [axes] : axes).map((axis) => axisOf(op, axis, tensor.ndim));
}

function takeRange(tensor: Tensor, axis: number, start: number, end: number): Tensor {
  const ranges: readonly Range[] = [...new Array<Range>(axis).fill(null), [start, end]];
  return tensor.device.apply(slice, [tensor], { ranges });
}

function equalParts(length: number, size: number): number[] {
  if (!Number.isInteger(size) || size < 1) {
    throw new HoldfastError("BAD_SHAPE", `split: parts of ${size}; give a whole number of 1 or more.`);
  }
  const count = Math.max(1, Math.ceil(length / size));
  return Array.from({ length: count }, (_, part) => Math.min(size, length - part * size));
}
