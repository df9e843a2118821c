/** Methods of tensors that split them into views. */

import { HoldfastError } from "../../errors/index.js";
import { axisOf, formatShape } from "../../ops/index.js";
import type { Tensor } from "../tensor.js";

/** Where all parts but the last one end: the first parts have one element more. */
function equalEnds(length: number, sections: number): number[] {
  if (!Number.isInteger(sections) || sections < 1) {
    throw new HoldfastError(
      "BAD_ARGUMENT",
      `tensorSplit: ${sections} sections; pass a whole number, 1 or more.`,
    );
  }
  const [size, larger] = [Math.floor(length / sections), length % sections];
  return Array.from({ length: sections - 1 }, (_, part) => (part + 1) * size + Math.min(part + 1, larger));
}

function requireAxes(op: string, x: Tensor, count: number): void {
  if (x.ndim >= count) return;
  throw new HoldfastError(
    "BAD_SHAPE",
    `${op} of shape ${formatShape(x.shape)}: it takes ${count} axes or more.`,
  );
}

/** A number of sections must divide the axis. */
function evenSplit(op: string, x: Tensor, sections: number | readonly number[], axis: number): Tensor[] {
  requireAxes(op, x, axis + 1);
  const length = x.shape[axis] ?? 0;
  if (typeof sections === "number" && length % sections !== 0) {
    throw new HoldfastError(
      "BAD_SHAPE",
      `${op}: ${sections} equal sections of axis ${axis}, which has ${length} elements. tensorSplit takes unequal ones.`,
    );
  }
  return x.tensorSplit(sections, axis);
}

export const splittingMethods = {
  /**
   * Views of parts along an axis: `sections` parts of nearly equal size, or parts that end before each of a list of indices.
   *
   * @example
   * ```ts
   * import { arange, device } from "holdfast";
   * const cpu = await device("cpu");
   * const x = arange(5);
   * console.log(x.tensorSplit(2).map((part) => part.tolist())); // → [ [ 0, 1, 2 ], [ 3, 4 ] ]
   * console.log(x.tensorSplit([1, 3]).map((part) => part.tolist())); // → [ [ 0 ], [ 1, 2 ], [ 3, 4 ] ]
   * cpu.close();
   * ```
   */
  tensorSplit(this: Tensor, sections: number | readonly number[], axis = 0): Tensor[] {
    const length = this.shape[axisOf("tensorSplit", axis, this.ndim)] ?? 0;
    const ends = typeof sections === "number" ? equalEnds(length, sections) : sections;
    const bounds = [
      0,
      ...ends.map((end) => Math.min(length, Math.max(0, end < 0 ? end + length : end))),
      length,
    ];
    return bounds
      .slice(1)
      .map((end, part) => this.narrow(axis, bounds[part] ?? 0, Math.max(0, end - (bounds[part] ?? 0))));
  },
  /**
   * `split` into parts of these sizes.
   *
   * @example
   * ```ts
   * import { arange, device } from "holdfast";
   * const cpu = await device("cpu");
   * console.log(arange(3).splitWithSizes([1, 2]).map((part) => part.tolist())); // → [ [ 0 ], [ 1, 2 ] ]
   * cpu.close();
   * ```
   */
  splitWithSizes(this: Tensor, sizes: readonly number[], axis = 0): Tensor[] {
    return this.split(sizes, axis);
  },
  /**
   * `tensorSplit` along axis 1; along axis 0 of a vector.
   *
   * @example
   * ```ts
   * import { device, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * console.log(tensor([[1, 2]]).hsplit(2).map((part) => part.tolist())); // → [ [ [ 1 ] ], [ [ 2 ] ] ]
   * cpu.close();
   * ```
   */
  hsplit(this: Tensor, sections: number | readonly number[]): Tensor[] {
    return evenSplit("hsplit", this, sections, this.ndim === 1 ? 0 : 1);
  },
  /**
   * `tensorSplit` along axis 0 of a tensor with two axes or more.
   *
   * @example
   * ```ts
   * import { device, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * console.log(tensor([[1], [2]]).vsplit(2).map((part) => part.tolist())); // → [ [ [ 1 ] ], [ [ 2 ] ] ]
   * cpu.close();
   * ```
   */
  vsplit(this: Tensor, sections: number | readonly number[]): Tensor[] {
    requireAxes("vsplit", this, 2);
    return evenSplit("vsplit", this, sections, 0);
  },
  /**
   * `tensorSplit` along axis 2.
   *
   * @example
   * ```ts
   * import { device, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * console.log(tensor([[[1, 2]]]).dsplit(2).map((part) => part.shape)); // → [ [ 1, 1, 1 ], [ 1, 1, 1 ] ]
   * cpu.close();
   * ```
   */
  dsplit(this: Tensor, sections: number | readonly number[]): Tensor[] {
    requireAxes("dsplit", this, 3);
    return evenSplit("dsplit", this, sections, 2);
  },
};
