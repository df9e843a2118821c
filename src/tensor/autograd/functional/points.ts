/** Shared by the functions that differentiate functions: the points at which they do, and gradients without holes. */

import { HoldfastError, type OptionNames } from "../../../errors/index.js";
import { expand, functions } from "../../../ops/index.js";
import type { Tensor } from "../../tensor.js";
import { grad } from "../grad.js";

/** One tensor or several, which a function takes or returns. */
export type OneOrMore = Tensor | readonly Tensor[];

/** Options of the functions of `autograd.functional`. */
export interface FunctionalOptions {
  /** Return results that can be differentiated. Default: results without a graph. */
  readonly createGraph?: boolean;
  /** Reject results that do not depend on an input. Default: their derivative is 0. */
  readonly strict?: boolean;
}

export const functionalOptionNames: OptionNames<FunctionalOptions> = { createGraph: true, strict: true };

export function listOf(items: OneOrMore): readonly Tensor[] {
  return Array.isArray(items) ? items : [items as Tensor];
}

/** The inputs as tensors with a gradient of their own: the caller's do not change. */
export function pointsOf(call: string, inputs: OneOrMore, createGraph: boolean): readonly Tensor[] {
  const list = listOf(inputs);
  if (list.length === 0)
    throw new HoldfastError("BAD_ARGUMENT", `${call} takes at least one input, but got none.`);
  return list.map((input) =>
    createGraph && input.requiresGrad ? input.reshape(input.shape) : input.detach().requiresGrad_(),
  );
}

export function zerosOf(x: Tensor): Tensor {
  return x.device.apply(functions.fill, [x.detach()], { value: 0 });
}

/** The gradients of outputs; zeros for inputs that they do not depend on. */
export function gradientsOf(
  call: string,
  outputs: readonly Tensor[],
  points: readonly Tensor[],
  options: FunctionalOptions & {
    readonly gradOutputs?: readonly Tensor[];
    readonly retainGraph?: boolean;
  },
): readonly Tensor[] {
  const { strict = false, createGraph = false, retainGraph = createGraph, gradOutputs } = options;
  const used = outputs.flatMap((output, index) => (output.requiresGrad ? [index] : []));
  const pick = <T>(items: readonly T[]): T[] => items.filter((_, index) => used.includes(index));
  const gradients =
    used.length === 0
      ? points.map(() => null)
      : grad(pick(outputs), points, {
          ...(gradOutputs && { gradOutputs: pick(gradOutputs) }),
          createGraph,
          retainGraph,
          allowUnused: true,
        });
  return gradients.map((gradient, index) => {
    if (gradient) return gradient;
    if (strict) throw independent(call, index);
    return zerosOf(points[index] as Tensor);
  });
}

function independent(call: string, input: number): HoldfastError {
  return new HoldfastError(
    "NO_GRADIENT",
    `${call}: the result does not depend on input ${input}. Without strict, its derivative is 0.`,
    { numbers: { input } },
  );
}

/** The vectors of a product: as many as tensors and of their shapes. Default: 1 for a single number. */
export function vectorsOf(
  call: string,
  vectors: OneOrMore | null | undefined,
  like: readonly Tensor[],
): readonly Tensor[] {
  const [first] = like;
  if (!vectors) {
    if (like.length === 1 && first?.numel === 1)
      return [first.device.apply(functions.fill, [first.detach()], { value: 1 })];
    throw new HoldfastError(
      "BAD_ARGUMENT",
      `${call}: pass a vector v; only for a single number it is 1 by default.`,
    );
  }
  const list = listOf(vectors);
  const misfit = like.findIndex(({ shape, dtype }, index) => {
    const vector = list[index];
    return vector?.dtype !== dtype || String(vector.shape) !== String(shape);
  });
  if (list.length === like.length && misfit < 0) return list;
  throw new HoldfastError(
    "BAD_SHAPE",
    misfit < 0
      ? `${call}: ${list.length} vectors for ${like.length} tensors. Pass one for each.`
      : `${call}: vector ${misfit} is ${list[misfit]?.dtype} [${list[misfit]?.shape.join(", ")}], and its tensor is ${like[misfit]?.dtype} ` +
          `[${like[misfit]?.shape.join(", ")}]. Pass a vector with the shape and dtype of the tensor.`,
  );
}

/** Without a graph, unless the caller wants one. */
export function finished(results: readonly Tensor[], createGraph: boolean): readonly Tensor[] {
  return createGraph ? results : results.map((result) => result.detach());
}

/** Results as what they belong to: one alone, or a list. */
export function likeList<T>(model: unknown, results: readonly T[]): T | readonly T[] {
  return Array.isArray(model) ? results : (results[0] as T);
}

/** Stretches leading axes of size 1. */
export function expanded(x: Tensor, count: number): Tensor {
  return x.device.apply(expand, [x], { shape: [count, ...x.shape] });
}
