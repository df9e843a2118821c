/** vmap: calls a function of one member of a batch for all members at once. */

import { checkOptions, HoldfastError } from "../../errors/index.js";
import { axisOf, expand, formatShape } from "../../ops/index.js";
import { Tensor } from "../tensor.js";
import { BatchedTensor } from "./batched-tensor.js";
import { atNewLevel, type Level, type Randomness } from "./level.js";

/** Options of `vmap`. */
export interface VmapOptions {
  /** The axis of the members in each argument, or null if all members share the argument. A single value holds for all arguments. Default: 0. */
  readonly inDims?: number | null | readonly (number | null)[];
  /** The axis of the members in each result. A single value holds for all results. Default: 0. */
  readonly outDims?: number | readonly number[];
  /** Functions with random numbers, such as `rand` and dropout: "different" draws for each member, "same" once for all, and "error" fails. Default: "error". */
  readonly randomness?: Randomness;
}

/**
 * A function that calls `fn` for all members of its arguments at once. Inside, tensors have no axis for the members, and each op runs once
 * for all of them. Arguments and results may be arrays and plain objects of tensors; other arguments are passed as they are.
 *
 * With `autograd.grad` inside, it computes gradients of each member. An op without a batching rule is an error.
 *
 * @example
 * ```ts
 * import { device, tensor, vmap } from "holdfast";
 * const cpu = await device("cpu");
 * const dot = vmap((a, b) => a.mul(b).sum(), { inDims: [0, null] });
 * console.log(dot(tensor([[1, 2], [3, 4]]), tensor([10, 1])).tolist()); // → [ 12, 34 ]
 * cpu.close();
 * ```
 */
export function vmap<Args extends readonly unknown[] = Tensor[], Result = Tensor>(
  fn: (...args: Args) => Result,
  options: VmapOptions = {},
): (...args: Args) => Result {
  const {
    inDims = 0,
    outDims = 0,
    randomness = "error",
  } = checkOptions("vmap", options, { inDims: true, outDims: true, randomness: true });
  return (...args) => {
    const dims = args.map((_, index) => (typeof inDims === "object" && inDims ? inDims[index] : inDims));
    if (typeof inDims === "object" && inDims && inDims.length !== args.length)
      throw badDims(`inDims has ${inDims.length} entries for ${args.length} arguments. Pass one for each.`);
    const size = memberCount(args, dims);
    return atNewLevel(size, randomness, (level) => {
      const members = args.map((arg, index) => {
        const dim = dims[index];
        if (typeof dim !== "number") return arg;
        return mapTensors(arg, (x) => memberOf(x, dim, level));
      });
      const result = fn(...(members as unknown as Args));
      return resultOf(result, outDims, level) as Result;
    });
  };
}

function memberCount(args: readonly unknown[], dims: readonly (number | null | undefined)[]): number {
  const sizes: number[] = [];
  for (const [index, arg] of args.entries()) {
    const dim = dims[index];
    if (typeof dim !== "number") continue;
    mapTensors(arg, (x) => {
      sizes.push(x.shape[axisOf("vmap", dim, x.ndim)] ?? 0);
      return x;
    });
  }
  const [size] = sizes;
  if (size === undefined)
    throw badDims("no argument has members. Pass a tensor, and an axis for it in inDims.");
  if (sizes.every((other) => other === size)) return size;
  throw new HoldfastError(
    "BAD_SHAPE",
    `vmap: the arguments have ${formatShape(sizes)} members along the axes of inDims; they must be equal. Pass null for an argument that is the ` +
      "same for all members.",
  );
}

/** A tensor without a gradient gets a value of its own, so that the function can make it a leaf. */
function memberOf(x: Tensor, dim: number, level: Level): Tensor {
  const own = x.requiresGrad ? x : x.detach();
  return new BatchedTensor(own.movedim(axisOf("vmap", dim, x.ndim), 0), level);
}

function resultOf(result: unknown, outDims: number | readonly number[], level: Level): unknown {
  if (result instanceof Promise) {
    result.catch(() => undefined);
    throw new HoldfastError("BAD_ARGUMENT", "vmap got an async function. Await outside of it.");
  }
  if (typeof outDims === "number") return mapTensors(result, (x) => wholeOf(x, outDims, level));
  if (!Array.isArray(result) || result.length !== outDims.length) {
    const count = Array.isArray(result) ? `${result.length} results` : "one result";
    throw badDims(`outDims has ${outDims.length} entries for ${count}. Pass one for each, or a number.`);
  }
  return result.map((item, index) => mapTensors(item, (x) => wholeOf(x, outDims[index] ?? 0, level)));
}

function wholeOf(x: Tensor, dim: number, level: Level): Tensor {
  const isBatched = x instanceof BatchedTensor && x.level === level;
  const whole = isBatched ? x.batch : x.device.apply(expand, [x], { shape: [level.size, ...x.shape] });
  return whole.movedim(0, axisOf("vmap", dim, whole.ndim));
}

/** Maps the tensors of an array or a plain object, however deep. */
function mapTensors(item: unknown, map: (x: Tensor) => Tensor): unknown {
  if (item instanceof Tensor) return map(item);
  if (Array.isArray(item)) return item.map((inner) => mapTensors(inner, map));
  if (item === null || typeof item !== "object" || Object.getPrototypeOf(item) !== Object.prototype)
    return item;
  return Object.fromEntries(Object.entries(item).map(([key, inner]) => [key, mapTensors(inner, map)]));
}

function badDims(what: string): HoldfastError {
  return new HoldfastError("BAD_ARGUMENT", `vmap: ${what}`);
}
