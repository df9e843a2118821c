/** Weight normalization: the length and the direction of a weight's rows as parameters of their own. */

import { checkOptions } from "../errors/index.js";
import { axisOf } from "../ops/index.js";
import type { Tensor } from "../tensor/index.js";
import { computeWeight, parameterOf, restoreWeight } from "./computed-weight.js";
import type { Module } from "./module.js";
import { Parameter } from "./parameter.js";

/** Options of `weightNorm`. */
export interface WeightNormOptions {
  /** The parameter's name. Default: "weight". */
  readonly name?: string;
  /** Every index of this axis has its own length; null: one length for all. Default: 0. */
  readonly axis?: number | null;
}

/**
 * Replaces a module's weight by its lengths g and its directions v, which are learned instead: the weight is g · v / ‖v‖. They are the parameters
 * `weightG` and `weightV`. Call it before you create the optimizer.
 *
 * @example
 * ```ts
 * import { device, nn, ones } from "holdfast";
 * const cpu = await device("cpu");
 * const layer = nn.utils.weightNorm(new nn.Linear(3, 2)).to(cpu);
 * console.log([...layer.namedParameters()].map(([name, { shape }]) => `${name} [${shape}]`));
 * // → [ 'bias [2]', 'weightG [2,1]', 'weightV [2,3]' ]
 * console.log(layer.forward(ones([1, 3])).shape); // → [ 1, 2 ]
 * cpu.close();
 * ```
 */
export function weightNorm<M extends Module>(module: M, options: WeightNormOptions = {}): M {
  const { name = "weight", axis = 0 } = checkOptions("nn.utils.weightNorm", options, {
    name: true,
    axis: true,
  });
  const direction = parameterOf("weightNorm", module, name);
  const kept = axis === null ? undefined : axisOf("weightNorm", axis, direction.ndim);
  const shape = kept === undefined ? [] : direction.shape.map((size, at) => (at === kept ? size : 1));
  const values = direction.isPlaced ? Float64Array.from(direction.to("f64").dataSync()) : undefined;
  const lengths = (): Float64Array => {
    const elements = values ?? direction.initialValues();
    const inner = kept === undefined ? 1 : direction.shape.slice(kept + 1).reduce((a, b) => a * b, 1);
    const squares = new Float64Array(kept === undefined ? 1 : (direction.shape[kept] ?? 0));
    for (let at = 0; at < elements.length; at++) {
      const index = kept === undefined ? 0 : Math.floor(at / inner) % squares.length;
      squares[index] = (squares[index] ?? 0) + (elements[at] ?? 0) ** 2;
    }
    return squares.map(Math.sqrt);
  };
  const length = new Parameter(shape, lengths, {
    dtype: direction.dtype,
    requiresGrad: direction.requiresGrad,
    name: `${direction.name} g`,
  });
  const others = direction.shape.map((_, at) => at).filter((at) => at !== kept);
  const compute = (): Tensor => {
    const norm = direction
      .square()
      .sum(others, { keepdim: kept !== undefined })
      .sqrt();
    return direction.mul(length.div(norm));
  };
  return computeWeight(module, name, {
    kind: "weightNorm",
    parameter: direction,
    parts: { [`${name}G`]: length, [`${name}V`]: direction },
    compute,
  });
}

/**
 * Undoes `weightNorm`: the parameter `weightV` is the module's weight again, with the computed values.
 *
 * @example
 * ```ts
 * import { device, nn } from "holdfast";
 * const cpu = await device("cpu");
 * const layer = nn.utils.weightNorm(new nn.Linear(3, 2)).to(cpu);
 * nn.utils.removeWeightNorm(layer);
 * console.log([...layer.namedParameters()].map(([name]) => name)); // → [ 'bias', 'weight' ]
 * cpu.close();
 * ```
 */
export function removeWeightNorm<M extends Module>(module: M, name = "weight"): M {
  return restoreWeight("weightNorm", module, name);
}
