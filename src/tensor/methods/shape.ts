/** Methods of tensors that change the shape: views wherever the memory layout allows it. */

import { HoldfastError } from "../../errors/index.js";
import { axisOf, expand, formatShape, permute, reshape, type Shape } from "../../ops/index.js";
import type { Tensor } from "../tensor.js";

export const shapeMethods = {
  /**
   * The size of one axis. A negative axis counts from the end. Unlike `shape[0]` it is never undefined.
   *
   * @example
   * ```ts
   * import { device, ones } from "holdfast";
   * const cpu = await device("cpu");
   * const x = ones([8, 3]);
   * console.log(x.size(0), x.size(-1)); // → 8 3
   * cpu.close();
   * ```
   */
  size(this: Tensor, axis: number): number {
    return this.shape[axisOf("size", axis, this.ndim)] ?? 0;
  },
  /**
   * `reshape` by its other name in PyTorch.
   *
   * @example
   * ```ts
   * import { arange, device } from "holdfast";
   * const cpu = await device("cpu");
   * console.log(arange(4).view([2, 2]).tolist()); // → [ [ 0, 1 ], [ 2, 3 ] ]
   * cpu.close();
   * ```
   */
  view(this: Tensor, shape: Shape): Tensor {
    return this.reshape(shape);
  },
  /**
   * The same elements in another shape; one size may be -1. A view wherever the memory layout allows it.
   *
   * @example
   * ```ts
   * import { arange, device } from "holdfast";
   * const cpu = await device("cpu");
   * const x = arange(6);
   * console.log(x.reshape([2, -1]).tolist()); // → [ [ 0, 1, 2 ], [ 3, 4, 5 ] ]
   * cpu.close();
   * ```
   */
  reshape(this: Tensor, shape: Shape): Tensor {
    return this.device.apply(reshape, [this], { shape });
  },
  /**
   * The axes in another order; a view.
   *
   * @example
   * ```ts
   * import { device, ones } from "holdfast";
   * const cpu = await device("cpu");
   * const images = ones([8, 32, 24, 3]);
   * console.log(images.permute([0, 3, 1, 2]).shape); // → [ 8, 3, 32, 24 ]
   * cpu.close();
   * ```
   */
  permute(this: Tensor, axes: readonly number[]): Tensor {
    return this.device.apply(permute, [this], { axes });
  },
  /**
   * Broadcasts to a shape: axes of size 1 and new leading axes repeat. A view.
   *
   * @example
   * ```ts
   * import { device, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * console.log(tensor([[1], [2]]).expand([2, 3]).tolist()); // → [ [ 1, 1, 1 ], [ 2, 2, 2 ] ]
   * cpu.close();
   * ```
   */
  expand(this: Tensor, shape: Shape): Tensor {
    return this.device.apply(expand, [this], { shape });
  },
  /**
   * Two axes exchanged; a view.
   *
   * @example
   * ```ts
   * import { device, ones } from "holdfast";
   * const cpu = await device("cpu");
   * console.log(ones([5, 2, 3]).transpose(-2, -1).shape); // → [ 5, 3, 2 ]
   * cpu.close();
   * ```
   */
  transpose(this: Tensor, a: number, b: number): Tensor {
    const order = this.shape.map((_, axis) => axis);
    const [from, to] = [axisOf("transpose", a, this.ndim), axisOf("transpose", b, this.ndim)];
    return this.permute(order.with(from, to).with(to, from));
  },
  /**
   * The transpose of a matrix; a vector or a number stays as it is.
   *
   * @example
   * ```ts
   * import { device, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * console.log(tensor([[1, 2], [3, 4]]).t().tolist()); // → [ [ 1, 3 ], [ 2, 4 ] ]
   * cpu.close();
   * ```
   */
  t(this: Tensor): Tensor {
    if (this.ndim < 2) return this;
    if (this.ndim === 2) return this.transpose(0, 1);
    throw new HoldfastError(
      "BAD_SHAPE",
      `t() of shape ${formatShape(this.shape)}: it is for matrices. transpose(-2, -1) exchanges the last two axes.`,
    );
  },
  /**
   * Moves axes to other positions; the rest keep their order. A view.
   *
   * @example
   * ```ts
   * import { device, ones } from "holdfast";
   * const cpu = await device("cpu");
   * console.log(ones([2, 3, 4, 5]).movedim(-1, 1).shape); // → [ 2, 5, 3, 4 ]
   * cpu.close();
   * ```
   */
  movedim(this: Tensor, from: number | readonly number[], to: number | readonly number[]): Tensor {
    const sources = axesOf("movedim", this, from);
    const targets = axesOf("movedim", this, to);
    if (sources.length !== targets.length) {
      throw new HoldfastError(
        "BAD_SHAPE",
        `movedim from ${formatShape(sources)} to ${formatShape(targets)}: pass as many positions as axes.`,
      );
    }
    const rest = this.shape.flatMap((_, axis) => (sources.includes(axis) ? [] : [axis]));
    const order = this.shape.map((_, axis) => sources[targets.indexOf(axis)] ?? rest.shift() ?? -1);
    return this.permute(order);
  },
  /**
   * Removes axes of size 1: these, or all. Larger axes stay, as in PyTorch. A view.
   *
   * @example
   * ```ts
   * import { device, ones } from "holdfast";
   * const cpu = await device("cpu");
   * const x = ones([1, 3, 1]);
   * console.log(x.squeeze().shape, x.squeeze(0).shape, x.squeeze(1).shape); // → [ 3 ] [ 3, 1 ] [ 1, 3, 1 ]
   * cpu.close();
   * ```
   */
  squeeze(this: Tensor, axes?: number | readonly number[]): Tensor {
    const removable = axes === undefined ? this.shape.map((_, axis) => axis) : axesOf("squeeze", this, axes);
    return this.reshape(this.shape.filter((size, axis) => size !== 1 || !removable.includes(axis)));
  },
  /**
   * Adds an axis of size 1 at this position; a view.
   *
   * @example
   * ```ts
   * import { device, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * console.log(tensor([1, 2]).unsqueeze(-1).tolist()); // → [ [ 1 ], [ 2 ] ]
   * cpu.close();
   * ```
   */
  unsqueeze(this: Tensor, axes: number | readonly number[]): Tensor {
    const list = typeof axes === "number" ? [axes] : axes;
    const ndim = this.ndim + list.length;
    const added = new Set(list.map((axis) => axisOf("unsqueeze", axis, ndim)));
    const sizes = this.shape[Symbol.iterator]();
    return this.reshape(
      Array.from({ length: ndim }, (_, axis) => (added.has(axis) ? 1 : (sizes.next().value ?? 1))),
    );
  },
  /**
   * Merges the axes from `first` to `last` into one. Default: all axes.
   *
   * @example
   * ```ts
   * import { device, ones } from "holdfast";
   * const cpu = await device("cpu");
   * const x = ones([2, 3, 4]);
   * console.log(x.flatten().shape, x.flatten(1).shape); // → [ 24 ] [ 2, 12 ]
   * cpu.close();
   * ```
   */
  flatten(this: Tensor, first = 0, last = -1): Tensor {
    if (this.ndim === 0) return this.reshape([1]);
    const [from, to] = [axisOf("flatten", first, this.ndim), axisOf("flatten", last, this.ndim)];
    const merged = this.shape.slice(from, to + 1).reduce((product, size) => product * size, 1);
    if (from <= to) return this.reshape(this.shape.toSpliced(from, to + 1 - from, merged));
    throw new HoldfastError(
      "BAD_SHAPE",
      `flatten from axis ${first} to ${last}: the first axis comes after the last.`,
    );
  },
  /**
   * Splits one axis into several; one of the sizes may be -1.
   *
   * @example
   * ```ts
   * import { device, ones } from "holdfast";
   * const cpu = await device("cpu");
   * console.log(ones([2, 12]).unflatten(-1, [4, -1]).shape); // → [ 2, 4, 3 ]
   * cpu.close();
   * ```
   */
  unflatten(this: Tensor, axis: number, sizes: Shape): Tensor {
    const index = axisOf("unflatten", axis, this.ndim);
    const length = this.shape[index] ?? 0;
    const explicit = sizes.filter((size) => size !== -1).reduce((product, size) => product * size, 1);
    const resolved = sizes.map((size) => (size === -1 ? length / explicit : size));
    if (
      resolved.every(Number.isInteger) &&
      resolved.reduce((product, size) => product * size, 1) === length
    ) {
      return this.reshape(this.shape.toSpliced(index, 1, ...resolved));
    }
    throw new HoldfastError(
      "BAD_SHAPE",
      `unflatten: axis ${axis} of ${formatShape(this.shape)} has ${length} elements, which cannot be split into the sizes ${formatShape(sizes)}.`,
    );
  },
};

function axesOf(op: string, tensor: Tensor, axes: number | readonly number[]): number[] {
  return (typeof axes === "number" ? [axes] : axes).map((axis) => axisOf(op, axis, tensor.ndim));
}
