/** jacobian and hessian. */

import { enableGrad } from "../../../autograd/index.js";
import { checkOptions, HoldfastError, type OptionNames } from "../../../errors/index.js";
import { cast, comparisons, cumsum, formatShape, functions, reshape } from "../../../ops/index.js";
import { stack } from "../../functions.js";
import type { Tensor } from "../../tensor.js";
import { vmap } from "../../vmap/vmap.js";
import {
  expanded,
  type FunctionalOptions,
  finished,
  gradientsOf,
  likeList,
  listOf,
  type OneOrMore,
  pointsOf,
  zerosOf,
} from "./points.js";

/** Options of `jacobian` and `hessian`. */
export interface JacobianOptions extends FunctionalOptions {
  /** Compute all rows at once, by `vmap` over copies of the function. Default: one backward pass for each row. */
  readonly vectorize?: boolean;
}

const jacobianOptionNames: OptionNames<JacobianOptions> = {
  vectorize: true,
  createGraph: true,
  strict: true,
};

/**
 * The derivatives of all elements of a function's result by all elements of its inputs: `[...result.shape, ...input.shape]`. A list of
 * inputs gives a list; a list of results gives a list of these.
 *
 * @example
 * ```ts
 * import { autograd, device, tensor } from "holdfast";
 * const cpu = await device("cpu");
 * const jacobian = autograd.functional.jacobian((x) => x.mul(x), tensor([1, 2, 3]));
 * console.log(jacobian.tolist()); // → [ [ 2, 0, 0 ], [ 0, 4, 0 ], [ 0, 0, 6 ] ]
 * cpu.close();
 * ```
 */
export function jacobian(
  fn: (...inputs: Tensor[]) => Tensor,
  inputs: Tensor,
  options?: JacobianOptions,
): Tensor;
export function jacobian(
  fn: (...inputs: Tensor[]) => Tensor,
  inputs: readonly Tensor[],
  options?: JacobianOptions,
): readonly Tensor[];
export function jacobian(
  fn: (...inputs: Tensor[]) => readonly Tensor[],
  inputs: Tensor,
  options?: JacobianOptions,
): readonly Tensor[];
export function jacobian(
  fn: (...inputs: Tensor[]) => readonly Tensor[],
  inputs: readonly Tensor[],
  options?: JacobianOptions,
): readonly (readonly Tensor[])[];
export function jacobian(
  fn: (...inputs: Tensor[]) => OneOrMore,
  inputs: OneOrMore,
  options: JacobianOptions = {},
): unknown {
  checkOptions("autograd.functional.jacobian", options, jacobianOptionNames);
  return enableGrad(() => {
    const points = pointsOf("jacobian", inputs, options.createGraph ?? false);
    const results = fn(...points);
    const all = listOf(results).map((result, index) => {
      const rows = options.vectorize
        ? rowsAtOnce((...xs) => listOf(fn(...xs))[index] as Tensor, result, points, options)
        : rowsOf(result, points, options);
      return likeList(inputs, finished(rows, options.createGraph ?? false));
    });
    return likeList(results, all);
  });
}

/**
 * The second derivatives of a function whose result is a single number: `[...input.shape, ...input.shape]`. A list of inputs gives a list of
 * lists.
 *
 * @example
 * ```ts
 * import { autograd, device, tensor } from "holdfast";
 * const cpu = await device("cpu");
 * const hessian = autograd.functional.hessian((x) => x.prod(), tensor([2, 3]));
 * console.log(hessian.tolist()); // → [ [ 0, 1 ], [ 1, 0 ] ]
 * cpu.close();
 * ```
 */
export function hessian(
  fn: (...inputs: Tensor[]) => Tensor,
  inputs: Tensor,
  options?: JacobianOptions,
): Tensor;
export function hessian(
  fn: (...inputs: Tensor[]) => Tensor,
  inputs: readonly Tensor[],
  options?: JacobianOptions,
): readonly (readonly Tensor[])[];
export function hessian(
  fn: (...inputs: Tensor[]) => Tensor,
  inputs: OneOrMore,
  options: JacobianOptions = {},
): unknown {
  checkOptions("autograd.functional.hessian", options, jacobianOptionNames);
  const slopes = (...points: Tensor[]): readonly Tensor[] => {
    const y = fn(...points);
    requireNumber("hessian", y);
    const strict = options.strict ?? false;
    return gradientsOf("hessian", [y.sum()], points, { createGraph: true, strict });
  };
  const rows = jacobian(slopes, listOf(inputs), options);
  return Array.isArray(inputs) ? rows : rows[0]?.[0];
}

/** Second derivatives are of a single number. */
export function requireNumber(call: string, y: Tensor): void {
  if (y.numel === 1) return;
  throw new HoldfastError(
    "BAD_SHAPE",
    `${call}: the function returned ${formatShape(y.shape)}. Return a single number, such as a sum.`,
  );
}

/** One backward pass for each element of a result. */
function rowsOf(result: Tensor, points: readonly Tensor[], options: FunctionalOptions): readonly Tensor[] {
  const { numel } = result;
  const seeds = seedsOf(result);
  const rows = Array.from({ length: numel }, (_, element) =>
    gradientsOf("jacobian", [result], points, {
      ...options,
      gradOutputs: [seeds.select(0, element)],
      retainGraph: true,
    }),
  );
  return points.map((point, index) => {
    const shape = [...result.shape, ...point.shape];
    if (numel === 0) return zerosOf(expanded(point, 0)).reshape(shape);
    return stack(rows.map((row) => row[index] as Tensor)).reshape(shape);
  });
}

/** The same by one pass over copies of the function, one for each element of the result. */
function rowsAtOnce(
  fn: (...inputs: Tensor[]) => Tensor,
  result: Tensor,
  points: readonly Tensor[],
  options: FunctionalOptions,
): readonly Tensor[] {
  const rows = vmap((seed: Tensor, ...copies: Tensor[]): readonly Tensor[] => {
    const leaves = copies.map((copy) => (copy.requiresGrad ? copy : copy.requiresGrad_()));
    return gradientsOf("jacobian", [fn(...leaves)], leaves, { ...options, gradOutputs: [seed] });
  })(seedsOf(result), ...points.map((point) => expanded(point, result.numel)));
  return rows.map((row, index) => row.reshape([...result.shape, ...(points[index] as Tensor).shape]));
}

/** For each element of a result an initial gradient: 1 for it, and 0 for the others. `[n, ...shape]` */
function seedsOf(result: Tensor): Tensor {
  const { device, numel, dtype, shape } = result;
  const flat = device.apply(reshape, [result.detach()], { shape: [numel] });
  const ones = device.apply(functions.fill, [device.apply(cast, [flat], { dtype: "i32" })], { value: 1 });
  const places = device.apply(cumsum, [ones], { axis: 0 });
  const column = device.apply(reshape, [places], { shape: [numel, 1] });
  const seeds = device.apply(cast, [device.apply(comparisons.eq, [column, places])], { dtype });
  return device.apply(reshape, [seeds], { shape: [numel, ...shape] });
}
