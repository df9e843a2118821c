/** Products of vectors with Jacobians and Hessians, which need no matrix. */

import { enableGrad } from "../../../autograd/index.js";
import { checkOptions } from "../../../errors/index.js";
import type { Tensor } from "../../tensor.js";
import { requireNumber } from "./jacobian.js";
import {
  type FunctionalOptions,
  finished,
  functionalOptionNames,
  gradientsOf,
  likeList,
  listOf,
  type OneOrMore,
  pointsOf,
  vectorsOf,
  zerosOf,
} from "./points.js";

/**
 * A function's results, and the product of a vector with its Jacobian: one backward pass. `v` has the form of the results; for a single number it
 * is 1 by default.
 *
 * @example
 * ```ts
 * import { autograd, device, tensor } from "holdfast";
 * const cpu = await device("cpu");
 * const [y, product] = autograd.functional.vjp((x) => x.mul(x), tensor([1, 2]), tensor([10, 1]));
 * console.log(y.tolist(), product.tolist()); // → [ 1, 4 ] [ 20, 4 ]
 * cpu.close();
 * ```
 */
export function vjp<Result extends OneOrMore, Inputs extends OneOrMore>(
  fn: (...inputs: Tensor[]) => Result,
  inputs: Inputs,
  v?: OneOrMore | null,
  options: FunctionalOptions = {},
): [Result, Inputs] {
  checkOptions("autograd.functional.vjp", options, functionalOptionNames);
  return enableGrad(() => {
    const { createGraph = false } = options;
    const points = pointsOf("vjp", inputs, createGraph);
    const results = fn(...points);
    const outputs = listOf(results);
    const gradOutputs = vectorsOf("vjp", v, outputs);
    const products = gradientsOf("vjp", outputs, points, { ...options, gradOutputs });
    return pair(results, outputs, inputs, products, createGraph) as [Result, Inputs];
  });
}

/**
 * A function's results, and the product of its Jacobian with a vector: the derivative in the direction `v`, which has the form of the inputs.
 * Two backward passes compute it: the product of the Jacobian with a vector is the gradient of `vjp` by its vector.
 *
 * @example
 * ```ts
 * import { autograd, device, tensor } from "holdfast";
 * const cpu = await device("cpu");
 * const [y, slope] = autograd.functional.jvp((x) => x.mul(x).sum(), tensor([1, 2]), tensor([1, 0]));
 * console.log(y.item(), slope.item()); // → 5 2
 * cpu.close();
 * ```
 */
export function jvp<Result extends OneOrMore, Inputs extends OneOrMore>(
  fn: (...inputs: Tensor[]) => Result,
  inputs: Inputs,
  v?: OneOrMore | null,
  options: FunctionalOptions = {},
): [Result, Result] {
  checkOptions("autograd.functional.jvp", options, functionalOptionNames);
  return enableGrad(() => {
    const { createGraph = false, strict = false } = options;
    const points = pointsOf("jvp", inputs, createGraph);
    const vectors = vectorsOf("jvp", v, points);
    const results = fn(...points);
    const outputs = listOf(results);
    const seeds = outputs.map((output) => zerosOf(output).requiresGrad_());
    const backwards = gradientsOf("jvp", outputs, points, { createGraph: true, strict, gradOutputs: seeds });
    const products = gradientsOf("jvp", backwards, seeds, { createGraph, gradOutputs: vectors });
    return pair(results, outputs, results, products, createGraph) as [Result, Result];
  });
}

/**
 * The result of a function that returns a single number, and the product of its Hessian with a vector.
 *
 * @example
 * ```ts
 * import { autograd, device, tensor } from "holdfast";
 * const cpu = await device("cpu");
 * const [y, product] = autograd.functional.hvp((x) => x.prod(), tensor([2, 3]), tensor([10, 1]));
 * console.log(y.item(), product.tolist()); // → 6 [ 1, 10 ]
 * cpu.close();
 * ```
 */
export function hvp<Inputs extends OneOrMore>(
  fn: (...inputs: Tensor[]) => Tensor,
  inputs: Inputs,
  v?: OneOrMore | null,
  options: FunctionalOptions = {},
): [Tensor, Inputs] {
  checkOptions("autograd.functional.hvp", options, functionalOptionNames);
  return hessianProduct("hvp", fn, inputs, v, options);
}

/**
 * The same with the vector on the left. A Hessian of continuous second derivatives is symmetric, so the product is that of `hvp`.
 *
 * @example
 * ```ts
 * import { autograd, device, tensor } from "holdfast";
 * const cpu = await device("cpu");
 * const [, product] = autograd.functional.vhp((x) => x.mul(x).mul(x).sum(), tensor([1, 2]), tensor([1, 1]));
 * console.log(product.tolist()); // → [ 6, 12 ]
 * cpu.close();
 * ```
 */
export function vhp<Inputs extends OneOrMore>(
  fn: (...inputs: Tensor[]) => Tensor,
  inputs: Inputs,
  v?: OneOrMore | null,
  options: FunctionalOptions = {},
): [Tensor, Inputs] {
  checkOptions("autograd.functional.vhp", options, functionalOptionNames);
  return hessianProduct("vhp", fn, inputs, v, options);
}

function hessianProduct<Inputs extends OneOrMore>(
  call: string,
  fn: (...inputs: Tensor[]) => Tensor,
  inputs: Inputs,
  v: OneOrMore | null | undefined,
  options: FunctionalOptions,
): [Tensor, Inputs] {
  return enableGrad(() => {
    const { createGraph = false, strict = false } = options;
    const points = pointsOf(call, inputs, createGraph);
    const gradOutputs = vectorsOf(call, v, points);
    const y = fn(...points);
    requireNumber(call, y);
    const slopes = gradientsOf(call, [y.sum()], points, { createGraph: true, strict });
    const products = gradientsOf(call, slopes, points, { ...options, gradOutputs });
    return pair(y, [y], inputs, products, createGraph) as [Tensor, Inputs];
  });
}

/** The function's results and the products, each in its form. */
function pair(
  results: unknown,
  outputs: readonly Tensor[],
  form: unknown,
  products: readonly Tensor[],
  createGraph: boolean,
): readonly [unknown, unknown] {
  return [likeList(results, finished(outputs, createGraph)), likeList(form, finished(products, createGraph))];
}
