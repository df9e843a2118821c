/**
 * Functions that create tensors of random numbers. The device draws them and counts the draws in its random state, so every call of a compiled
 * step has new ones. The seed and the count determine the bits, on every device.
 */

import { checkOptions, HoldfastError, type OptionNames } from "../errors/index.js";
import type { Dtype } from "../ir/index.js";
import { type Distribution, type Integers, standardNormal, standardUniform } from "../kernels/index.js";
import { cast, isDrawable, random, requireDtype, requireShape, type Shape } from "../ops/index.js";
import type { TensorOptions } from "./creation.js";
import { checkCreation, tensorOptionNames } from "./creation.js";
import { type Device, deviceFor } from "./device.js";
import { Tensor } from "./tensor.js";

/**
 * Uniform random numbers from 0 to 1, 1 excluded. The seed determines them.
 *
 * @example
 * ```ts
 * import { device, manualSeed, rand } from "holdfast";
 * const cpu = await device("cpu");
 * manualSeed(1);
 * console.log(rand([1000]).mean().sub(0.5).abs().item() < 0.05); // → true
 * cpu.close();
 * ```
 */
export function rand(shape: Shape, options: TensorOptions = {}): Tensor {
  checkCreation("rand", shape, options);
  return draw("rand", standardUniform, shape, options);
}

/**
 * Random numbers of the standard normal distribution. The seed determines them. Inside a compiled step every call has new ones.
 *
 * @example
 * ```ts
 * import { device, manualSeed, randn } from "holdfast";
 * const cpu = await device("cpu");
 * manualSeed(1);
 * console.log(randn([1000]).mean().abs().item() < 0.1); // → true
 * const noise = cpu.compile(() => randn([2]));
 * console.log(String(noise()) === String(noise())); // → false
 * cpu.close();
 * ```
 */
export function randn(shape: Shape, options: TensorOptions = {}): Tensor {
  checkCreation("randn", shape, options);
  return draw("randn", standardNormal, shape, options);
}

/**
 * Uniform random numbers from 0 to 1, with the shape, dtype and device of another tensor.
 *
 * @example
 * ```ts
 * import { device, randLike, zeros } from "holdfast";
 * const cpu = await device("cpu");
 * console.log(randLike(zeros([2, 3])).shape); // → [ 2, 3 ]
 * cpu.close();
 * ```
 */
export function randLike(like: Tensor, options: TensorOptions = {}): Tensor {
  checkOptions("randLike", options, tensorOptionNames);
  return draw("randLike", standardUniform, like.shape, optionsOf(like, options));
}

/**
 * Random numbers of the standard normal distribution, with the shape, dtype and device of another tensor.
 *
 * @example
 * ```ts
 * import { device, randnLike, zeros } from "holdfast";
 * const cpu = await device("cpu");
 * const x = zeros([2, 3], { dtype: "bf16" });
 * console.log(x.add(randnLike(x)).dtype); // → bf16
 * cpu.close();
 * ```
 */
export function randnLike(like: Tensor, options: TensorOptions = {}): Tensor {
  checkOptions("randnLike", options, tensorOptionNames);
  return draw("randnLike", standardNormal, like.shape, optionsOf(like, options));
}

/**
 * Uniform random integers from `low` up to but not including `high`. The seed determines them. Default dtype: i32.
 *
 * @example
 * ```ts
 * import { device, randint } from "holdfast";
 * const cpu = await device("cpu");
 * const dice = randint(1, 7, [100]);
 * console.log(dice.amin().item() >= 1, dice.amax().item() <= 6); // → true true
 * cpu.close();
 * ```
 */
export function randint(low: number, high: number, shape: Shape, options: TensorOptions = {}): Tensor {
  checkCreation("randint", shape, options);
  return draw("randint", integersBetween("randint", low, high), shape, { dtype: "i32", ...options });
}

/**
 * Uniform random integers from `low` up to but not including `high`, with the shape, dtype and device of another tensor.
 *
 * @example
 * ```ts
 * import { device, randintLike, zeros } from "holdfast";
 * const cpu = await device("cpu");
 * const bits = randintLike(zeros([100]), 0, 2);
 * console.log(bits.dtype, bits.amin().item(), bits.amax().item()); // → f32 0 1
 * cpu.close();
 * ```
 */
export function randintLike(like: Tensor, low: number, high: number, options: TensorOptions = {}): Tensor {
  checkOptions("randintLike", options, tensorOptionNames);
  return draw("randintLike", integersBetween("randintLike", low, high), like.shape, optionsOf(like, options));
}

/**
 * The numbers from 0 up to but not including `count` in random order, as i32. The seed determines the order. Inside a compiled step every
 * call has a new one.
 *
 * @example
 * ```ts
 * import { device, randperm } from "holdfast";
 * const cpu = await device("cpu");
 * console.log(randperm(5).sum().item()); // → 10
 * const shuffle = cpu.compile(() => randperm(50));
 * console.log(String(shuffle()) === String(shuffle())); // → false
 * cpu.close();
 * ```
 */
export function randperm(count: number, options: TensorOptions = {}): Tensor {
  checkOptions("randperm", options, tensorOptionNames);
  requireShape("randperm", [count]);
  const { dtype = "i32", requiresGrad = false } = options;
  const device = deviceFor(options.device);
  requireDtype("A new tensor", dtype);
  const order = orderKeys(count, device).argsort();
  const result = order.dtype === dtype ? order : device.apply(cast, [order], { dtype });
  if (requiresGrad) result.requiresGrad = true;
  return result;
}

/**
 * Random whole numbers of 53 bits, as f64: 32 bits of one word above 21 bits of another. Two of n keys are equal with a probability below
 * n² in 2⁵⁴, so all orders of them are equally likely.
 */
function orderKeys(count: number, device: Device): Tensor {
  const words = drawAs(device, integersBetween("randperm", -(2 ** 31), 2 ** 31 - 1), [2, count], "i32");
  return words
    .select(0, 0)
    .to("f64")
    .mul(2 ** 21)
    .add(words.select(0, 1).bitwiseAnd(2 ** 21 - 1));
}

/**
 * Random numbers of the normal distribution with this mean and standard deviation. They are numbers, or tensors that broadcast; without a
 * tensor, pass the shape. Gradients flow to both.
 *
 * @example
 * ```ts
 * import { device, normal, tensor } from "holdfast";
 * const cpu = await device("cpu");
 * console.log(normal(tensor([0, 10, 20]), 0).tolist()); // → [ 0, 10, 20 ]
 * console.log(normal(5, 0, [2]).tolist()); // → [ 5, 5 ]
 * cpu.close();
 * ```
 */
export function normal(
  mean: Tensor | number,
  std: Tensor | number,
  shape?: Shape,
  options: TensorOptions = {},
): Tensor {
  checkOptions("normal", options, tensorOptionNames);
  const given = mean instanceof Tensor ? mean : std instanceof Tensor ? std : undefined;
  if (!given) {
    if (!shape) throw new HoldfastError("BAD_ARGUMENT", "normal of two numbers: pass the shape as well.");
    requireDeviation("normal", std as number);
    return draw("normal", { kind: "normal", mean: mean as number, std: std as number }, shape, options);
  }
  if (shape)
    throw new HoldfastError("BAD_ARGUMENT", "normal of a tensor has its shape: do not pass another.");
  const sum =
    mean instanceof Tensor && std instanceof Tensor ? mean.detach().add(std.detach()) : given.detach();
  return draw("normal", standardNormal, sum.shape, optionsOf(given, options)).mul(std).add(mean);
}

/**
 * 1 with the probability that each element has, else 0, in its dtype.
 *
 * @example
 * ```ts
 * import { bernoulli, device, tensor } from "holdfast";
 * const cpu = await device("cpu");
 * console.log(bernoulli(tensor([0, 1, 1])).tolist()); // → [ 0, 1, 1 ]
 * cpu.close();
 * ```
 */
export function bernoulli(probabilities: Tensor): Tensor {
  return probabilities.bernoulli();
}

/** Options of `multinomial`. */
export interface MultinomialOptions {
  /** True if an index may be drawn several times. Default: false. */
  readonly replacement?: boolean;
}

export const multinomialOptionNames: OptionNames<MultinomialOptions> = { replacement: true };

/**
 * Indices along the last axis, drawn with probabilities in proportion to the elements, as i32. Weights of 0 are not drawn while others are
 * left.
 *
 * @example
 * ```ts
 * import { device, multinomial, tensor } from "holdfast";
 * const cpu = await device("cpu");
 * const weights = tensor([[0, 3, 0], [5, 0, 0]]);
 * console.log(multinomial(weights, 2, { replacement: true }).tolist()); // → [ [ 1, 1 ], [ 0, 0 ] ]
 * cpu.close();
 * ```
 */
export function multinomial(weights: Tensor, count: number, options: MultinomialOptions = {}): Tensor {
  checkOptions("multinomial", options, multinomialOptionNames);
  return weights.multinomial(count, options);
}

/** Draws a tensor. Dtypes that are not drawn are cast. */
export function draw(
  caller: string,
  distribution: Distribution | Integers,
  shape: Shape,
  options: TensorOptions,
): Tensor {
  const { dtype = "f32", requiresGrad = false } = options;
  const device = deviceFor(options.device);
  requireDtype("A new tensor", dtype);
  requireShape(caller, shape);
  const drawn = drawAs(device, distribution, shape, drawnDtype(distribution, dtype));
  const result = drawn.dtype === dtype ? drawn : device.apply(cast, [drawn], { dtype });
  if (requiresGrad) result.requiresGrad = true;
  return result;
}

function drawAs(device: Device, distribution: Distribution | Integers, shape: Shape, dtype: Dtype): Tensor {
  device.requireOpen();
  return device.apply(random, [device.randomState], { shape: [...shape], dtype, distribution });
}

/** The dtype in which values are drawn that become elements of another one. */
export function drawnDtype({ kind }: Distribution | Integers, dtype: Dtype): Dtype {
  if (kind === "integers") return "i32";
  return isDrawable(dtype) ? dtype : "f32";
}

/** The whole numbers from `low` up to but not including `high`. */
export function integersBetween(caller: string, low: number, high: number): Integers {
  const count = high - low;
  const isInRange = low >= -(2 ** 31) && high <= 2 ** 31 && count < 2 ** 32;
  if ([low, high].every(Number.isSafeInteger) && count >= 1 && isInRange)
    return { kind: "integers", low, count };
  throw new HoldfastError(
    "BAD_ARGUMENT",
    `${caller} from ${low} to ${high}: pass two whole numbers of i32, the second above the first.`,
    { numbers: { low, high } },
  );
}

/** Throws unless it is a standard deviation. */
export function requireDeviation(caller: string, std: number): void {
  if (std >= 0 && std < Number.POSITIVE_INFINITY) return;
  throw new HoldfastError(
    "BAD_ARGUMENT",
    `${caller}: the standard deviation is ${std}; pass a finite number of 0 or more.`,
    { numbers: { std } },
  );
}

function optionsOf(like: Tensor, options: TensorOptions): TensorOptions {
  return { dtype: like.dtype, device: like.device, ...options };
}
