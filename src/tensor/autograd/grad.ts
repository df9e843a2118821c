/** `autograd.grad` and `autograd.backward`: gradients of several tensors at once. */

import { checkOptions, HoldfastError } from "../../errors/index.js";
import type { BackwardOptions } from "../device-methods/backward.js";
import { backwardOptionNames } from "../device-methods/backward.js";
import type { Tensor } from "../tensor.js";

/** Options of `autograd.grad`. */
export interface GradOptions {
  /** The initial gradients of the outputs. Default: 1, for outputs with a single number. */
  readonly gradOutputs?: Tensor | readonly (Tensor | null)[];
  /** Record the pass, so that the gradients have graphs and can be differentiated. */
  readonly createGraph?: boolean;
  /** Keep the saved tensors, for another pass through the same graph. Default: the value of `createGraph`. */
  readonly retainGraph?: boolean;
  /** Return null for inputs that the outputs do not depend on. Default: they are an error. */
  readonly allowUnused?: boolean;
}

/** One gradient for each input. */
type GradientsOf<Inputs extends readonly Tensor[], Gradient> = { readonly [Index in keyof Inputs]: Gradient };

/**
 * The gradients of the sum of outputs with respect to inputs, which may be leaves or results of ops. No tensor's `grad` changes.
 *
 * With `createGraph` the gradients are results of recorded ops, so that a loss can contain them: a gradient penalty, a Hessian. This also
 * works in compiled steps.
 *
 * @example
 * ```ts
 * import { autograd, device, tensor } from "holdfast";
 * const cpu = await device("cpu");
 * cpu.step(() => {
 *   const x = tensor([1, 2, 3], { requiresGrad: true });
 *   const [slope] = autograd.grad(x.mul(x).mul(x).sum(), [x], { createGraph: true });
 *   console.log(slope.tolist()); // → [ 3, 12, 27 ]
 *   const [curvature] = autograd.grad(slope.sum(), [x]);
 *   console.log(curvature.tolist(), x.grad); // → [ 6, 12, 18 ] null
 * });
 * cpu.close();
 * ```
 */
export function grad(
  outputs: Tensor | readonly Tensor[],
  input: Tensor,
  options?: GradOptions & { readonly allowUnused?: false },
): readonly [Tensor];
export function grad<const Inputs extends readonly Tensor[]>(
  outputs: Tensor | readonly Tensor[],
  inputs: Inputs,
  options?: GradOptions & { readonly allowUnused?: false },
): GradientsOf<Inputs, Tensor>;
export function grad<const Inputs extends readonly Tensor[]>(
  outputs: Tensor | readonly Tensor[],
  inputs: Inputs,
  options: GradOptions,
): GradientsOf<Inputs, Tensor | null>;
export function grad(
  outputs: Tensor | readonly Tensor[],
  inputs: Tensor | readonly Tensor[],
  given: GradOptions = {},
): readonly (Tensor | null)[] {
  const {
    gradOutputs,
    allowUnused = false,
    ...options
  } = checkOptions("autograd.grad", given, {
    gradOutputs: true,
    createGraph: true,
    retainGraph: true,
    allowUnused: true,
  });
  const [roots, requested] = [listOf(outputs), listOf(inputs)];
  const [first] = roots;
  if (!first) throw new HoldfastError("BAD_ARGUMENT", "grad takes at least one output, but got none.");
  const gradients = first.device.grad(roots, seedsOf("grad", roots, gradOutputs), requested, options);
  const unused = gradients.indexOf(null);
  if (unused < 0 || allowUnused) return gradients;
  throw new HoldfastError(
    "NO_GRADIENT",
    `grad: the outputs do not depend on input ${unused}, "${requested[unused]?.name}". Pass allowUnused: true to get null for it.`,
    { numbers: { input: unused } },
  );
}

/**
 * Runs backward from several tensors at once, through the graph that they share.
 *
 * @example
 * ```ts
 * import { autograd, device, tensor } from "holdfast";
 * const cpu = await device("cpu");
 * const x = tensor([1, 2], { requiresGrad: true });
 * autograd.backward([x.sum(), x.mul(x).sum()]);
 * console.log(x.grad?.tolist()); // → [ 3, 5 ]
 * cpu.close();
 * ```
 */
export function backward(
  tensors: Tensor | readonly Tensor[],
  gradTensors?: Tensor | readonly (Tensor | null)[],
  options: BackwardOptions = {},
): void {
  checkOptions("autograd.backward", options, backwardOptionNames);
  const roots = listOf(tensors);
  const [first] = roots;
  if (!first) throw new HoldfastError("BAD_ARGUMENT", "backward takes at least one tensor, but got none.");
  first.device.backward(roots, seedsOf("backward", roots, gradTensors), options);
}

function listOf<T>(items: T | readonly T[]): readonly T[] {
  return Array.isArray(items) ? items : [items as T];
}

function seedsOf(
  call: string,
  roots: readonly Tensor[],
  seeds: Tensor | readonly (Tensor | null)[] | undefined,
): readonly (Tensor | null)[] {
  if (seeds === undefined) return [];
  const list = listOf<Tensor | null>(seeds);
  if (list.length === roots.length) return list;
  throw new HoldfastError(
    "BAD_ARGUMENT",
    `${call}: ${list.length} initial gradients for ${roots.length} outputs. Pass one for each, or null.`,
  );
}
