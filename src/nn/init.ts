/**
 * Initializers: the first values of parameters, drawn from the seed. They depend on the seed and the order in which
 * parameters are created, so two processes start from the same bits.
 */

import { HoldfastError } from "../errors/index.js";
import { normal as drawNormal, drawWords, uniform as fractionOf } from "../kernels/index.js";
import { formatShape, type Shape, sizeOf } from "../ops/index.js";
import type { Initializer } from "./parameter.js";

/** The function after the layer; its gain preserves the variance of the activations. */
export type Nonlinearity = "linear" | "sigmoid" | "tanh" | "relu" | "leakyRelu";

/** Options of Kaiming initialisers. */
export interface KaimingOptions {
  /** The negative slope of the leaky ReLU after the layer. */
  readonly a?: number;
  /** Preserve the variance of the forward (fanIn) or backward pass (fanOut). */
  readonly mode?: "fanIn" | "fanOut";
  readonly nonlinearity?: Nonlinearity;
}

/** Options of Xavier initialisers. */
export interface XavierOptions {
  readonly gain?: number;
}

/**
 * All zeros.
 *
 * @example
 * ```ts
 * import { nn } from "holdfast";
 * console.log(new nn.Parameter([2], nn.init.zeros()).initialValues()); // → Float32Array(2) [ 0, 0 ]
 * ```
 */
export function zeros(): Initializer {
  return constant(0);
}

/**
 * All ones.
 *
 * @example
 * ```ts
 * import { nn } from "holdfast";
 * console.log(new nn.Parameter([2], nn.init.ones()).initialValues()); // → Float32Array(2) [ 1, 1 ]
 * ```
 */
export function ones(): Initializer {
  return constant(1);
}

/**
 * A constant.
 *
 * @example
 * ```ts
 * import { nn } from "holdfast";
 * console.log(new nn.Parameter([2], nn.init.constant(0.5)).initialValues()); // → Float32Array(2) [ 0.5, 0.5 ]
 * ```
 */
export function constant(value: number): Initializer {
  return (shape) => new Float32Array(sizeOf(shape)).fill(value);
}

/**
 * Uniform between two bounds.
 *
 * @example
 * ```ts
 * import { nn } from "holdfast";
 * const values = Array.from(new nn.Parameter([100], nn.init.uniform(-1, 1)).initialValues());
 * console.log(values.every((value) => value >= -1 && value <= 1)); // → true
 * ```
 */
export function uniform(low = 0, high = 1): Initializer {
  if (!(low <= high) || !Number.isFinite(high - low)) {
    throw new HoldfastError(
      "BAD_ARGUMENT",
      `uniform(${low}, ${high}): the bounds must be finite, the lower first.`,
    );
  }
  return (shape, draw) =>
    Float32Array.from(drawWords(draw, sizeOf(shape)), (word) => low + (high - low) * fractionOf(word));
}

/**
 * Normal, with a mean and a standard deviation.
 *
 * @example
 * ```ts
 * import { manualSeed, nn } from "holdfast";
 * const draw = () => {
 *   manualSeed(7);
 *   return String(new nn.Parameter([3], nn.init.normal(0, 0.02)).initialValues());
 * };
 * console.log(draw() === draw()); // → true
 * ```
 */
export function normal(mean = 0, std = 1): Initializer {
  if (!Number.isFinite(mean) || !(std >= 0) || !Number.isFinite(std)) {
    throw new HoldfastError(
      "BAD_ARGUMENT",
      `normal(${mean}, ${std}): the mean must be finite, and the standard deviation finite and not negative.`,
    );
  }
  return (shape, draw) => drawNormal(draw, sizeOf(shape)).map((value) => mean + std * value);
}

/**
 * He initialization, uniform. The default slope √5 makes the bound 1/√fanIn, as in Linear and the convolutions; before
 * a ReLU pass `{ a: 0 }`.
 *
 * @example
 * ```ts
 * import { nn } from "holdfast";
 * const values = Array.from(new nn.Parameter([8, 4], nn.init.kaimingUniform()).initialValues());
 * console.log(values.every((value) => Math.abs(value) <= 0.5)); // → true
 * ```
 */
export function kaimingUniform({ a = Math.sqrt(5), ...options }: KaimingOptions = {}): Initializer {
  return (shape, draw) => {
    const bound = Math.sqrt(3) * kaimingDeviation("kaimingUniform", shape, { a, ...options });
    return uniform(-bound, bound)(shape, draw);
  };
}

/**
 * He initialization, normal. Default: for a ReLU after the layer.
 *
 * @example
 * ```ts
 * import { nn } from "holdfast";
 * const weight = new nn.Parameter([64, 32], nn.init.kaimingNormal({ mode: "fanOut" }));
 * console.log(weight.initialValues().length); // → 2048
 * ```
 */
export function kaimingNormal(options: KaimingOptions = {}): Initializer {
  return (shape, draw) => normal(0, kaimingDeviation("kaimingNormal", shape, options))(shape, draw);
}

/**
 * Glorot initialization, uniform: within ±gain·√(6 / (fanIn + fanOut)).
 *
 * @example
 * ```ts
 * import { nn } from "holdfast";
 * const values = Array.from(new nn.Parameter([3, 3], nn.init.xavierUniform()).initialValues());
 * console.log(values.every((value) => Math.abs(value) <= 1)); // → true
 * ```
 */
export function xavierUniform(options: XavierOptions = {}): Initializer {
  return (shape, draw) => {
    const bound = Math.sqrt(3) * xavierDeviation("xavierUniform", shape, options);
    return uniform(-bound, bound)(shape, draw);
  };
}

/**
 * Glorot initialization, normal: with standard deviation gain·√(2 / (fanIn + fanOut)).
 *
 * @example
 * ```ts
 * import { nn } from "holdfast";
 * const weight = new nn.Parameter([16, 16], nn.init.xavierNormal({ gain: nn.init.gainOf("tanh") }));
 * console.log(weight.initialValues().length); // → 256
 * ```
 */
export function xavierNormal(options: XavierOptions = {}): Initializer {
  return (shape, draw) => normal(0, xavierDeviation("xavierNormal", shape, options))(shape, draw);
}

/**
 * The gain for weights before a nonlinearity, which preserves the variance.
 *
 * @example
 * ```ts
 * import { nn } from "holdfast";
 * console.log(nn.init.gainOf("tanh").toFixed(4)); // → 1.6667
 * ```
 */
export function gainOf(nonlinearity: Nonlinearity, slope = 0.01): number {
  switch (nonlinearity) {
    case "linear":
    case "sigmoid":
      return 1;
    case "tanh":
      return 5 / 3;
    case "relu":
      return Math.SQRT2;
    case "leakyRelu":
      return Math.sqrt(2 / (1 + slope ** 2));
  }
}

/**
 * The number of inputs per output element (fan-in), and of outputs per input (fan-out). A weight is `[out, in, …kernel]`:
 * a convolution's kernel size multiplies both.
 *
 * @example
 * ```ts
 * import { nn } from "holdfast";
 * console.log(nn.init.fansOf([16, 3, 5, 5])); // → { fanIn: 75, fanOut: 400 }
 * ```
 */
export function fansOf(shape: Shape): { readonly fanIn: number; readonly fanOut: number } {
  const [out = 1, inner = 1, ...kernel] = shape;
  if (shape.length < 2) {
    throw new HoldfastError(
      "BAD_SHAPE",
      `A parameter of shape ${formatShape(shape)} has no fan-in and fan-out: these need [out, in] and, for a convolution, ` +
        "its kernel. Use uniform() or normal() for it.",
    );
  }
  return { fanIn: inner * sizeOf(kernel), fanOut: out * sizeOf(kernel) };
}

function kaimingDeviation(
  name: string,
  shape: Shape,
  { a = 0, mode = "fanIn", nonlinearity = "leakyRelu" }: KaimingOptions,
): number {
  return deviation(name, gainOf(nonlinearity, a), fansOf(shape)[mode]);
}

function xavierDeviation(name: string, shape: Shape, { gain = 1 }: XavierOptions): number {
  const { fanIn, fanOut } = fansOf(shape);
  return deviation(name, gain, (fanIn + fanOut) / 2);
}

/** gain / √fan; a parameter without elements needs no values. */
function deviation(name: string, gain: number, fan: number): number {
  if (!Number.isFinite(gain) || gain < 0) {
    throw new HoldfastError(
      "BAD_ARGUMENT",
      `${name}: the gain is ${gain}; it must be finite and not negative.`,
    );
  }
  return fan > 0 ? gain / Math.sqrt(fan) : 0;
}
