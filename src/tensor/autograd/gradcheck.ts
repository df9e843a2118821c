/** Checks of gradients by central differences. */

import { enableGrad, noGrad } from "../../autograd/index.js";
import { checkOptions, HoldfastError } from "../../errors/index.js";
import type { Tensor } from "../tensor.js";
import { grad } from "./grad.js";

/** Options of `gradcheck` and `gradgradcheck`. */
export interface GradcheckOptions {
  /** The step of a difference. Default: 1e-6. */
  readonly eps?: number;
  /** The absolute tolerance. Default: 1e-5. */
  readonly atol?: number;
  /** The tolerance relative to the difference. Default: 1e-3. */
  readonly rtol?: number;
  /** False: return false for a wrong gradient. Default: throw an error that says where it is. */
  readonly raiseException?: boolean;
}

type Differentiable = (...inputs: Tensor[]) => Tensor | readonly Tensor[];

/**
 * Compares the gradients of a function with central differences, for each element of each input that requires a gradient and each element
 * of each result. These inputs must be f64: differences of f32 have few correct digits. The function must compute from its arguments, not from
 * other tensors. Call it inside a step, which frees what it computes.
 *
 * @example
 * ```ts
 * import { autograd, device, tensor } from "holdfast";
 * const cpu = await device("cpu");
 * const x = tensor([0.5, 2], { dtype: "f64", requiresGrad: true });
 * console.log(autograd.gradcheck((x) => x.tanh().mul(x), [x])); // → true
 * cpu.close();
 * ```
 */
export function gradcheck(
  fn: Differentiable,
  given: Tensor | readonly Tensor[],
  options: GradcheckOptions = {},
): boolean {
  const inputs = listOf(given);
  checkOptions("autograd.gradcheck", options, { eps: true, atol: true, rtol: true, raiseException: true });
  const { eps = 1e-6, atol = 1e-5, rtol = 1e-3, raiseException = true } = options;
  const checked = inputs.flatMap((input, index) => (input.requiresGrad ? [index] : []));
  const other = checked.find((index) => inputs[index]?.dtype !== "f64");
  if (checked.length === 0 || other !== undefined) {
    throw new HoldfastError(
      "BAD_ARGUMENT",
      checked.length === 0
        ? "gradcheck: no input requires a gradient. Pass an input with requiresGrad: true."
        : `gradcheck: input ${other} is ${inputs[other ?? 0]?.dtype}. Pass f64: differences of other floats have too few digits.`,
    );
  }
  const leaves = inputs.map((input, index) =>
    checked.includes(index) ? copyOf(input, input.dataSync() as ArrayLike<number>) : input,
  );
  const outputs = listOf(fn(...leaves));
  const slopes = outputs.map((output) =>
    Array.from({ length: output.numel }, (_, element) => slopesOf(output, element, leaves, checked)),
  );
  for (const [order, index] of checked.entries()) {
    const input = leaves[index] as Tensor;
    const values = Float64Array.from(input.dataSync() as ArrayLike<number>);
    for (const at of values.keys()) {
      const [above, below] = [eps, -eps].map((step) => {
        const moved = values.with(at, (values[at] ?? 0) + step);
        const points = leaves.with(index, copyOf(input, moved));
        return noGrad(() => listOf(fn(...points)).map((output) => output.dataSync()));
      });
      for (const [output, rows] of slopes.entries()) {
        for (const [element, row] of rows.entries()) {
          const [high, low] = [above, below].map((results) => Number(results?.[output]?.[element]));
          const expected = ((high ?? 0) - (low ?? 0)) / (2 * eps);
          const actual = Number(row[order]?.[at] ?? 0);
          if (Math.abs(actual - expected) <= atol + rtol * Math.abs(expected)) continue;
          if (!raiseException) return false;
          throw new HoldfastError(
            "BAD_ARGUMENT",
            `gradcheck: the gradient of element ${element} of result ${output} by element ${at} of input ${index} is ${actual}, and ` +
              `differences give ${expected}.`,
            { numbers: { actual, expected } },
          );
        }
      }
    }
  }
  return true;
}

/**
 * Compares gradients of gradients with central differences. It checks how a function's gradients depend on the inputs and on the initial
 * gradients.
 *
 * @example
 * ```ts
 * import { autograd, device, tensor } from "holdfast";
 * const cpu = await device("cpu");
 * const x = tensor([0.5, 2], { dtype: "f64", requiresGrad: true });
 * console.log(autograd.gradgradcheck((x) => x.tanh().mul(x), [x])); // → true
 * cpu.close();
 * ```
 */
export function gradgradcheck(
  fn: Differentiable,
  given: Tensor | readonly Tensor[],
  options: GradcheckOptions & { readonly gradOutputs?: readonly Tensor[] } = {},
): boolean {
  checkOptions("autograd.gradgradcheck", options, {
    eps: true,
    atol: true,
    rtol: true,
    raiseException: true,
    gradOutputs: true,
  });
  const { gradOutputs, ...others } = options;
  const inputs = listOf(given);
  const seeds =
    gradOutputs ??
    listOf(noGrad(() => fn(...inputs))).map((output) => {
      const values = Float64Array.from({ length: output.numel }, (_, index) => Math.cos(1 + 1.7 * index));
      return output.device.fromHost(values, output.shape, "f64").requiresGrad_();
    });
  const first = (...all: Tensor[]): readonly Tensor[] =>
    enableGrad(() => {
      const [points, gradOutputs] = [all.slice(0, inputs.length), all.slice(inputs.length)];
      const wanted = points.filter(({ requiresGrad }) => requiresGrad);
      const outputs = listOf(fn(...points));
      const slopes = grad(outputs, wanted, { gradOutputs, createGraph: true, allowUnused: true });
      return slopes.flatMap((slope) => slope ?? []);
    });
  return gradcheck(first, [...inputs, ...seeds], others);
}

/** The gradients of one element of a result by the checked inputs. */
function slopesOf(
  output: Tensor,
  element: number,
  leaves: readonly Tensor[],
  checked: readonly number[],
): readonly ArrayLike<number | bigint>[] {
  if (!output.requiresGrad) return [];
  const seed = new Float64Array(output.numel);
  seed[element] = 1;
  const gradOutputs = [output.device.fromHost(seed, output.shape, output.dtype)];
  const points = leaves.filter((_, index) => checked.includes(index));
  const slopes = grad([output], points, { gradOutputs, retainGraph: true, allowUnused: true });
  return slopes.map((slope) => slope?.dataSync() ?? []);
}

/** A leaf of the same shape, with these elements. */
function copyOf({ device, shape, requiresGrad }: Tensor, values: ArrayLike<number>): Tensor {
  const copy = device.fromHost(values, shape, "f64");
  copy.requiresGrad = requiresGrad;
  return copy;
}

function listOf<T>(items: T | readonly T[]): readonly T[] {
  return Array.isArray(items) ? items : [items as T];
}
