/** Methods of tensors that rearrange, repeat and window elements. */

import { HoldfastError } from "../../errors/index.js";
import { axisOf, formatShape, type Shape } from "../../ops/index.js";
import { arange } from "../creation.js";
import { cat } from "../functions.js";
import type { Tensor } from "../tensor.js";
import type { Axes } from "./reduction.js";

const listOf = (values: number | readonly number[]): readonly number[] =>
  typeof values === "number" ? [values] : values;

/** The last `shift` elements of an axis come first. */
function rolled(x: Tensor, shift: number, axis: number): Tensor {
  const size = x.shape[axisOf("roll", axis, x.ndim)] ?? 0;
  const moved = size === 0 ? 0 : ((shift % size) + size) % size;
  if (moved === 0) return x;
  return cat([x.narrow(axis, size - moved, moved), x.narrow(axis, 0, size - moved)], axis);
}

export const rearrangingMethods = {
  /**
   * The slices along an axis, each a view without it.
   *
   * @example
   * ```ts
   * import { device, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * console.log(tensor([[1, 2], [3, 4]]).unbind().map((row) => row.tolist())); // → [ [ 1, 2 ], [ 3, 4 ] ]
   * cpu.close();
   * ```
   */
  unbind(this: Tensor, axis = 0): Tensor[] {
    const size = this.shape[axisOf("unbind", axis, this.ndim)] ?? 0;
    return Array.from({ length: size }, (_, index) => this.select(axis, index));
  },
  /**
   * Shifts the elements along axes. Elements that leave at one end enter at the other. Without axes, it shifts the flattened tensor.
   *
   * @example
   * ```ts
   * import { device, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * const x = tensor([[1, 2], [3, 4]]);
   * console.log(x.roll(1).tolist(), x.roll(1, 1).tolist()); // → [ [ 4, 1 ], [ 2, 3 ] ] [ [ 2, 1 ], [ 4, 3 ] ]
   * cpu.close();
   * ```
   */
  roll(this: Tensor, shifts: number | readonly number[], axes?: Axes): Tensor {
    if (axes === undefined) {
      if (typeof shifts === "number") return rolled(this.flatten(), shifts, 0).reshape(this.shape);
      throw new HoldfastError(
        "BAD_ARGUMENT",
        "roll: a list of shifts needs axes. Pass one axis for each shift.",
      );
    }
    const amounts = listOf(shifts);
    const along = listOf(axes);
    if (amounts.length !== along.length) {
      throw new HoldfastError(
        "BAD_ARGUMENT",
        `roll: ${amounts.length} shifts along ${along.length} axes. Pass one axis for each shift.`,
      );
    }
    return along.reduce<Tensor>((x, axis, index) => rolled(x, amounts[index] ?? 0, axis), this);
  },
  /**
   * Rotates by quarter turns in the plane of two axes, from the first toward the second.
   *
   * @example
   * ```ts
   * import { device, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * console.log(tensor([[1, 2], [3, 4]]).rot90().tolist()); // → [ [ 2, 4 ], [ 1, 3 ] ]
   * cpu.close();
   * ```
   */
  rot90(this: Tensor, turns = 1, axes: readonly [number, number] = [0, 1]): Tensor {
    const [a, b] = axes;
    const quarter = ((turns % 4) + 4) % 4;
    if (quarter === 0) return this;
    if (quarter === 2) return this.flip([a, b]);
    return quarter === 1 ? this.flip(b).transpose(a, b) : this.transpose(a, b).flip(b);
  },
  /**
   * Reverses the columns of a matrix: axis 1.
   *
   * @example
   * ```ts
   * import { device, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * console.log(tensor([[1, 2], [3, 4]]).fliplr().tolist()); // → [ [ 2, 1 ], [ 4, 3 ] ]
   * cpu.close();
   * ```
   */
  fliplr(this: Tensor): Tensor {
    return this.flip(1);
  },
  /**
   * Reverses the rows: axis 0.
   *
   * @example
   * ```ts
   * import { device, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * console.log(tensor([[1, 2], [3, 4]]).flipud().tolist()); // → [ [ 3, 4 ], [ 1, 2 ] ]
   * cpu.close();
   * ```
   */
  flipud(this: Tensor): Tensor {
    return this.flip(0);
  },
  /**
   * Repeats the tensor along each axis. Unlike `tile`, it needs a count for every axis; more counts add axes before the others.
   *
   * @example
   * ```ts
   * import { device, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * console.log(tensor([1, 2]).repeat([2, 2]).tolist()); // → [ [ 1, 2, 1, 2 ], [ 1, 2, 1, 2 ] ]
   * cpu.close();
   * ```
   */
  repeat(this: Tensor, counts: readonly number[]): Tensor {
    if (!Array.isArray(counts)) {
      throw new HoldfastError(
        "BAD_SHAPE",
        `repeat: the counts are ${String(counts)}; pass all counts in an array, such as [2, 1].`,
      );
    }
    if (counts.length >= this.ndim) return this.tile(counts);
    throw new HoldfastError(
      "BAD_SHAPE",
      `repeat: ${counts.length} counts for shape ${formatShape(this.shape)}. Pass one for every axis, or use tile().`,
    );
  },
  /**
   * Windows of `size` elements along an axis, `step` elements apart. The result is a copy, and has the windows' elements as its last axis.
   *
   * @example
   * ```ts
   * import { device, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * console.log(tensor([1, 2, 3, 4]).unfold(0, 2, 1).tolist()); // → [ [ 1, 2 ], [ 2, 3 ], [ 3, 4 ] ]
   * cpu.close();
   * ```
   */
  unfold(this: Tensor, axis: number, size: number, step: number): Tensor {
    const along = axisOf("unfold", axis, this.ndim);
    const length = this.shape[along] ?? 0;
    if (![size, step].every(Number.isInteger) || size < 0 || size > length || step < 1) {
      throw new HoldfastError(
        "BAD_SHAPE",
        `unfold: windows of ${size} with a step of ${step} along axis ${along} of ${formatShape(this.shape)}. A window has at most ${length} elements, and a step at least one.`,
      );
    }
    const count = Math.floor((length - size) / step) + 1;
    const starts = arange(count, undefined, 1, { device: this.device }).mul(step).unsqueeze(1);
    const index = starts.add(arange(size, undefined, 1, { device: this.device })).flatten();
    return this.indexSelect(along, index)
      .unflatten(along, [count, size])
      .movedim(along + 1, -1);
  },
  /**
   * `transpose` by NumPy's name.
   *
   * @example
   * ```ts
   * import { device, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * console.log(tensor([[1, 2]]).swapaxes(0, 1).shape); // → [ 2, 1 ]
   * cpu.close();
   * ```
   */
  swapaxes(this: Tensor, a: number, b: number): Tensor {
    return this.transpose(a, b);
  },
  /**
   * Another name of `transpose`.
   *
   * @example
   * ```ts
   * import { device, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * console.log(tensor([[1, 2]]).swapdims(0, 1).shape); // → [ 2, 1 ]
   * cpu.close();
   * ```
   */
  swapdims(this: Tensor, a: number, b: number): Tensor {
    return this.transpose(a, b);
  },
  /**
   * `expand` by NumPy's name.
   *
   * @example
   * ```ts
   * import { device, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * console.log(tensor([1, 2]).broadcastTo([2, 2]).tolist()); // → [ [ 1, 2 ], [ 1, 2 ] ]
   * cpu.close();
   * ```
   */
  broadcastTo(this: Tensor, shape: Shape): Tensor {
    return this.expand(shape);
  },
  /**
   * Sums over the axes along which a tensor of this shape would broadcast to the tensor's.
   *
   * @example
   * ```ts
   * import { device, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * console.log(tensor([[1, 2], [3, 4]]).sumToSize([1, 2]).tolist()); // → [ [ 4, 6 ] ]
   * cpu.close();
   * ```
   */
  sumToSize(this: Tensor, shape: Shape): Tensor {
    const added = this.ndim - shape.length;
    const axes = this.shape.flatMap((size, axis) =>
      axis < added || (shape[axis - added] === 1 && size !== 1) ? [axis] : [],
    );
    const sum = axes.length > 0 ? this.sum(axes, { keepdim: true }) : this;
    return sum.reshape(shape);
  },
};
