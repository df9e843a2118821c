/** Maxima, minima and their indices, `any` and `all`, as methods of tensors. */

import { checkOptions } from "../../errors/index.js";
import { all, amax, amin, any, argmax, argmin, type PlaceAttributes } from "../../ops/index.js";
import type { Tensor } from "../tensor.js";
import { type Axes, type ReductionOptions, reductionAttributes, reductionOptionNames } from "./reduction.js";

export const extremeMethods = {
  /**
   * The largest element over axes, or over all elements; NaN if one of them is NaN. Equal elements share the gradient.
   *
   * @example
   * ```ts
   * import { device, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * const x = tensor([[1, 5, 5], [7, NaN, 2]]);
   * console.log(x.amax(1).tolist(), x.amax(0).tolist()); // → [ 5, NaN ] [ 7, NaN, 5 ]
   * cpu.close();
   * ```
   */
  amax(this: Tensor, axes?: Axes, options: ReductionOptions = {}): Tensor {
    checkOptions("amax", options, reductionOptionNames);
    return this.device.apply(amax, [this], reductionAttributes(axes, options));
  },
  /**
   * The smallest element over axes, or over all elements; NaN if one of them is NaN. Equal elements share the gradient.
   *
   * @example
   * ```ts
   * import { device, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * const x = tensor([2, 1, 1], { requiresGrad: true });
   * x.amin().backward();
   * console.log(x.grad?.tolist()); // → [ 0, 0.5, 0.5 ]
   * cpu.close();
   * ```
   */
  amin(this: Tensor, axes?: Axes, options: ReductionOptions = {}): Tensor {
    checkOptions("amin", options, reductionOptionNames);
    return this.device.apply(amin, [this], reductionAttributes(axes, options));
  },
  /**
   * The index of the largest element along an axis, or in the flattened tensor, as i32; the first of equal elements.
   *
   * @example
   * ```ts
   * import { device, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * const logits = tensor([[0, 3, 1], [2, 2, 0]]);
   * console.log(logits.argmax(-1).tolist(), logits.argmax().item()); // → [ 1, 0 ] 1
   * cpu.close();
   * ```
   */
  argmax(this: Tensor, axis?: number, options: ReductionOptions = {}): Tensor {
    checkOptions("argmax", options, reductionOptionNames);
    return this.device.apply(argmax, [this], indexAttributes(axis, options));
  },
  /**
   * The index of the smallest element along an axis, or in the flattened tensor, as i32; the first of equal elements.
   *
   * @example
   * ```ts
   * import { device, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * console.log(tensor([[4, 1], [0, 9]]).argmin(0, { keepdim: true }).tolist()); // → [ [ 1, 0 ] ]
   * cpu.close();
   * ```
   */
  argmin(this: Tensor, axis?: number, options: ReductionOptions = {}): Tensor {
    checkOptions("argmin", options, reductionOptionNames);
    return this.device.apply(argmin, [this], indexAttributes(axis, options));
  },
  /**
   * True if no element is 0, over axes or over all elements.
   *
   * @example
   * ```ts
   * import { device, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * console.log(tensor([[1, 2], [0, 3]]).all(1).tolist()); // → [ true, false ]
   * cpu.close();
   * ```
   */
  all(this: Tensor, axes?: Axes, options: ReductionOptions = {}): Tensor {
    checkOptions("all", options, reductionOptionNames);
    return this.device.apply(all, [this], reductionAttributes(axes, options));
  },
  /**
   * True if at least one element is not 0, over axes or over all elements.
   *
   * @example
   * ```ts
   * import { device, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * const x = tensor([1, NaN, 3]);
   * console.log(x.isnan().any().tolist()); // → true
   * cpu.close();
   * ```
   */
  any(this: Tensor, axes?: Axes, options: ReductionOptions = {}): Tensor {
    checkOptions("any", options, reductionOptionNames);
    return this.device.apply(any, [this], reductionAttributes(axes, options));
  },
  /**
   * The largest of all elements; or, along one axis, the largest elements and their first indices, as in PyTorch.
   *
   * @example
   * ```ts
   * import { device, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * const x = tensor([[1, 5, 5], [7, 2, 3]]);
   * const { values, indices } = x.max(1);
   * console.log(x.max().item(), values.tolist(), indices.tolist()); // → 7 [ 5, 7 ] [ 1, 0 ]
   * cpu.close();
   * ```
   */
  max: extreme("argmax", "amax"),
  /**
   * The smallest of all elements; or, along one axis, the smallest elements and their first indices.
   *
   * @example
   * ```ts
   * import { device, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * const x = tensor([[1, 5, 5], [7, 2, 3]]);
   * console.log(x.min().item(), x.min(0).indices.tolist()); // → 1 [ 0, 1, 1 ]
   * cpu.close();
   * ```
   */
  min: extreme("argmin", "amin"),
};

/** The result of `max` and `min` along an axis. */
export interface Extremes {
  readonly values: Tensor;
  /** i32 */
  readonly indices: Tensor;
}

export interface ExtremeMethod {
  (this: Tensor): Tensor;
  (this: Tensor, axis: number, options?: ReductionOptions): Extremes;
}

const extremeNames = { amax: "max", amin: "min" } as const;

/** The values are gathered from the indices, so the gradient goes to one element. */
function extreme(indexOf: "argmax" | "argmin", ofAll: "amax" | "amin"): ExtremeMethod {
  function method(this: Tensor): Tensor;
  function method(this: Tensor, axis: number, options?: ReductionOptions): Extremes;
  function method(this: Tensor, axis?: number, options: ReductionOptions = {}): Tensor | Extremes {
    const { keepdim = false } = checkOptions(extremeNames[ofAll], options, reductionOptionNames);
    if (axis === undefined) return this[ofAll]();
    const indices = this[indexOf](axis, { keepdim: true });
    const values = this.gather(axis, indices);
    return keepdim ? { values, indices } : { values: values.squeeze(axis), indices: indices.squeeze(axis) };
  }
  return method;
}

function indexAttributes(axis: number | undefined, { keepdim = false }: ReductionOptions): PlaceAttributes {
  return { keepsAxes: keepdim, ...(axis !== undefined && { axis }) };
}
