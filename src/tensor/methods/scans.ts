/** Scans, differences and integrals along an axis, as methods of tensors. */

import { noGrad } from "../../autograd/index.js";
import { checkOptions, type OptionNames } from "../../errors/index.js";
import { axisOf, isFloat } from "../../ops/index.js";
import { arange } from "../creation.js";
import { cat } from "../functions.js";
import type { Tensor } from "../tensor.js";
import type { Extremes } from "./extremes.js";

export interface TrapezoidOptions {
  /** The positions of the points; they broadcast with the values. */
  readonly x?: Tensor;
  /** The distance of the points without `x`. Default: 1. */
  readonly dx?: number;
  /** Default: the last axis. */
  readonly axis?: number;
}

const trapezoidOptionNames: OptionNames<TrapezoidOptions> = { x: true, dx: true, axis: true };

/** The areas of the trapezoids between neighbouring points. */
function trapezoids(y: Tensor, { x, dx = 1, axis = -1 }: TrapezoidOptions): Tensor {
  const size = y.shape[axisOf("trapezoid", axis, y.ndim)] ?? 0;
  const count = Math.max(0, size - 1);
  const sums = y
    .narrow(axis, size - count, count)
    .add(y.narrow(axis, 0, count))
    .mul(0.5);
  return sums.mul(x ? x.diff(1, x.ndim === 1 ? -1 : axis) : dx);
}

type Parts = readonly [Tensor, ...Tensor[]];

/**
 * An inclusive scan with an associative operation, in ⌈log₂ n⌉ steps: after each, an element has the result of twice as many elements. The
 * gradient is that of the steps.
 */
export function scan<P extends Parts>(
  op: string,
  x: P,
  axis: number,
  combine: (earlier: P, later: P) => P,
): P {
  const along = axisOf(op, axis, x[0].ndim);
  const size = x[0].shape[along] ?? 0;
  let parts = x;
  for (let distance = 1; distance < size; distance *= 2) {
    const narrow = (start: number, length: number): P =>
      parts.map((part) => part.narrow(along, start, length)) as unknown as P;
    const combined = combine(narrow(0, size - distance), narrow(distance, size - distance));
    parts = narrow(0, distance).map((first, index) =>
      cat([first, combined[index] ?? first], along),
    ) as unknown as P;
  }
  return parts;
}

/** The indices are scanned, and the values gathered, so that the gradient goes to one element each. */
function extremeScan(
  op: string,
  x: Tensor,
  axis: number,
  wins: (later: Tensor, earlier: Tensor) => Tensor,
): Extremes {
  const along = axisOf(op, axis, x.ndim);
  const indices = noGrad(() => {
    const positions = arange(x.shape[along] ?? 0, undefined, 1, { device: x.device });
    const index = positions.reshape(x.shape.map((_, at) => (at === along ? -1 : 1))).expand(x.shape);
    const start: readonly [Tensor, Tensor] = [x.detach(), index];
    return scan(op, start, along, ([earlier, earlierIndex], [later, laterIndex]) => {
      const isLater = later.isnan().logicalOr(earlier.isnan().logicalNot().logicalAnd(wins(later, earlier)));
      return [later.where(isLater, earlier), laterIndex.where(isLater, earlierIndex)] as const;
    })[1];
  });
  return { values: x.gather(along, indices), indices };
}

export const scanMethods = {
  /**
   * The product of each element and all before it along an axis.
   *
   * @example
   * ```ts
   * import { device, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * console.log(tensor([1, 2, 3]).cumprod(0).tolist()); // → [ 1, 2, 6 ]
   * cpu.close();
   * ```
   */
  cumprod(this: Tensor, axis: number): Tensor {
    const x = isFloat(this.dtype) ? this : this.to("i32");
    return scan("cumprod", [x], axis, ([a], [b]) => [a.mul(b)])[0];
  },
  /**
   * The logarithm of the sum of eˣ of each element and all before it along an axis, without overflow.
   *
   * @example
   * ```ts
   * import { device, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * console.log(tensor([1000, 1000]).logcumsumexp(0)); // → tensor([1000.     1000.6932], shape [2], f32, cpu)
   * cpu.close();
   * ```
   */
  logcumsumexp(this: Tensor, axis: number): Tensor {
    return scan("logcumsumexp", [this], axis, ([a], [b]) => [a.logaddexp(b)])[0];
  },
  /**
   * The maximum of each element and all before it along an axis, and its last index. NaN counts as the largest.
   *
   * @example
   * ```ts
   * import { device, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * const { values, indices } = tensor([1, 3, 2, 3]).cummax(0);
   * console.log(values.tolist(), indices.tolist()); // → [ 1, 3, 3, 3 ] [ 0, 1, 1, 3 ]
   * cpu.close();
   * ```
   */
  cummax(this: Tensor, axis: number): Extremes {
    return extremeScan("cummax", this, axis, (later, earlier) => later.ge(earlier));
  },
  /**
   * The minimum of each element and all before it along an axis, and its last index. NaN counts as the smallest.
   *
   * @example
   * ```ts
   * import { device, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * const { values, indices } = tensor([3, 1, 2, 1]).cummin(0);
   * console.log(values.tolist(), indices.tolist()); // → [ 3, 1, 1, 1 ] [ 0, 1, 1, 3 ]
   * cpu.close();
   * ```
   */
  cummin(this: Tensor, axis: number): Extremes {
    return extremeScan("cummin", this, axis, (later, earlier) => later.le(earlier));
  },
  /**
   * `cumsum` in place.
   *
   * @example
   * ```ts
   * import { device, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * console.log(tensor([1, 2, 3]).cumsum_(0).tolist()); // → [ 1, 3, 6 ]
   * cpu.close();
   * ```
   */
  cumsum_(this: Tensor, axis: number): Tensor {
    return this.copy_(this.cumsum(axis));
  },
  /**
   * `cumprod` in place.
   *
   * @example
   * ```ts
   * import { device, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * console.log(tensor([1, 2, 3]).cumprod_(0).tolist()); // → [ 1, 2, 6 ]
   * cpu.close();
   * ```
   */
  cumprod_(this: Tensor, axis: number): Tensor {
    return this.copy_(this.cumprod(axis));
  },
  /**
   * The differences of neighbouring elements along an axis, n times. `prepend` and `append` extend the axis first.
   *
   * @example
   * ```ts
   * import { device, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * console.log(tensor([1, 4, 9]).diff().tolist(), tensor([1, 4, 9]).diff(2).tolist()); // → [ 3, 5 ] [ 2 ]
   * cpu.close();
   * ```
   */
  diff(
    this: Tensor,
    n = 1,
    axis = -1,
    options: { readonly prepend?: Tensor; readonly append?: Tensor } = {},
  ): Tensor {
    const { prepend, append } = checkOptions("diff", options, { prepend: true, append: true });
    const parts = [...(prepend ? [prepend] : []), this, ...(append ? [append] : [])];
    let x: Tensor = parts.length > 1 ? cat(parts, axis) : this;
    for (let times = 0; times < n; times++) {
      const size = x.shape[axisOf("diff", axis, x.ndim)] ?? 0;
      const kept = Math.max(0, size - 1);
      const [later, earlier] = [x.narrow(axis, size - kept, kept), x.narrow(axis, 0, kept)];
      x = x.dtype === "bool" ? later.logicalXor(earlier) : later.sub(earlier);
    }
    return x;
  },
  /**
   * The integral along an axis by the trapezoidal rule, for points `dx` (default: 1) apart or at `x`.
   *
   * @example
   * ```ts
   * import { device, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * console.log(tensor([1, 2, 3]).trapezoid({ dx: 2 }).item()); // → 8
   * cpu.close();
   * ```
   */
  trapezoid(this: Tensor, options: TrapezoidOptions = {}): Tensor {
    checkOptions("trapezoid", options, trapezoidOptionNames);
    return trapezoids(this, options).sum(options.axis ?? -1);
  },
  /**
   * The integral from the first point to each other one by the trapezoidal rule.
   *
   * @example
   * ```ts
   * import { device, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * console.log(tensor([1, 2, 3]).cumulativeTrapezoid().tolist()); // → [ 1.5, 4 ]
   * cpu.close();
   * ```
   */
  cumulativeTrapezoid(this: Tensor, options: TrapezoidOptions = {}): Tensor {
    checkOptions("cumulativeTrapezoid", options, trapezoidOptionNames);
    return trapezoids(this, options).cumsum(options.axis ?? -1);
  },
};
