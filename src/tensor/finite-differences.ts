/** Estimates of derivatives from samples. */

import { checkOptions, HoldfastError } from "../errors/index.js";
import { axesOf, formatShape } from "../ops/index.js";
import { cat } from "./functions.js";
import type { Axes } from "./methods/reduction.js";
import { Tensor } from "./tensor.js";

/** The options of `gradient`. */
export interface FiniteDifferenceOptions {
  /** The distance of samples, one for each axis, or the coordinates of the samples along each axis. Default: 1. */
  readonly spacing?: number | readonly number[] | readonly Tensor[];
  /** Default: all axes. */
  readonly axes?: Axes;
  /** The order of the error at both ends. Default: 1. */
  readonly edgeOrder?: 1 | 2;
}

/**
 * The partial derivative along each axis of a function with these samples: central differences, and differences to one side at both ends.
 *
 * @example
 * ```ts
 * import { device, gradient, tensor } from "holdfast";
 * const cpu = await device("cpu");
 * const [slope] = gradient(tensor([0, 1, 4, 9]));
 * console.log(slope?.tolist()); // → [ 1, 2, 4, 5 ]
 * const [exact] = gradient(tensor([0, 1, 4, 9]), { edgeOrder: 2 });
 * console.log(exact?.tolist()); // → [ 0, 2, 4, 6 ]
 * cpu.close();
 * ```
 */
export function gradient(x: Tensor, options: FiniteDifferenceOptions = {}): Tensor[] {
  const {
    spacing = 1,
    axes,
    edgeOrder = 1,
  } = checkOptions("gradient", options, { spacing: true, axes: true, edgeOrder: true });
  const along = axesOf("gradient", axes, x.ndim);
  const spacings = typeof spacing === "number" ? along.map(() => spacing) : spacing;
  if (spacings.length !== along.length) {
    throw new HoldfastError(
      "BAD_ARGUMENT",
      `gradient along ${along.length} axes: spacing has ${spacings.length} items. Pass one number, or an item for each axis.`,
    );
  }
  if (edgeOrder !== 1 && edgeOrder !== 2)
    throw new HoldfastError("BAD_ARGUMENT", `gradient: edgeOrder is ${edgeOrder}; pass 1 or 2.`);
  const samples = x.isFloatingPoint() ? x : x.to("f32");
  return along.map((axis, index) => alongAxis(samples, axis, spacings[index] ?? 1, edgeOrder));
}

/** The slopes between neighbours, `first` and `second`, are weighted by each other's distance. */
function alongAxis(x: Tensor, axis: number, spacing: number | Tensor, edgeOrder: 1 | 2): Tensor {
  const size = x.shape[axis] ?? 0;
  if (size <= edgeOrder) {
    throw new HoldfastError(
      "BAD_SHAPE",
      `gradient of ${formatShape(x.shape)}: axis ${axis} has ${size} samples; edgeOrder ${edgeOrder} needs ${edgeOrder + 1} or more.`,
    );
  }
  const steps = distancesOf(x, axis, spacing, size);
  const slopes = x.diff(1, axis).div(steps);
  const part = (of: Tensor | number, start: number, length: number): Tensor | number =>
    of instanceof Tensor ? of.narrow(axis, start, length) : of;
  const [leading, trailing] = [slopes.narrow(axis, 0, 1), slopes.narrow(axis, size - 2, 1)];
  if (size === 2) return cat([leading, trailing], axis);
  const [before, after] = [part(steps, 0, size - 2), part(steps, 1, size - 2)];
  const middle = between(slopes.narrow(axis, 0, size - 2), slopes.narrow(axis, 1, size - 2), before, after);
  if (edgeOrder === 1) return cat([leading, middle, trailing], axis);
  // A parabola through three samples: its slope in the middle of an interval is that of the interval.
  const bend = (near: Tensor, next: number, own: number): Tensor => {
    const other = slopes.narrow(axis, next, 1);
    const [width, sum] = [part(steps, own, 1), sumOf(part(steps, own, 1), part(steps, next, 1))];
    return near.add(near.sub(other).mul(width).div(sum));
  };
  return cat([bend(leading, 1, 0), middle, bend(trailing, size - 3, size - 2)], axis);
}

function between(first: Tensor, second: Tensor, before: Tensor | number, after: Tensor | number): Tensor {
  return first.mul(after).add(second.mul(before)).div(sumOf(before, after));
}

function sumOf(a: Tensor | number, b: Tensor | number): Tensor | number {
  if (a instanceof Tensor) return a.add(b);
  return b instanceof Tensor ? b.add(a) : a + b;
}

/** The distances of neighbours: a number, or a tensor that broadcasts. */
function distancesOf(x: Tensor, axis: number, spacing: number | Tensor, size: number): Tensor | number {
  if (typeof spacing === "number") return spacing;
  if (spacing.ndim !== 1 || spacing.shape[0] !== size) {
    throw new HoldfastError(
      "BAD_SHAPE",
      `gradient: the coordinates along axis ${axis} are ${formatShape(spacing.shape)}; pass [${size}], one for each sample.`,
    );
  }
  return spacing
    .diff()
    .to(x.dtype)
    .reshape(x.shape.map((_, at) => (at === axis ? -1 : 1)));
}
