/**
 * Initializers: the first values of parameters, drawn from the seed. They depend on the seed and the order in which
 * parameters are created, so two processes start from the same bits.
 */

import { checkOptions, HoldfastError, type OptionNames } from "../errors/index.js";
import { truncationOf } from "../kernels/index.js";
import { drawOnHost, formatShape, type Random, type Shape, sizeOf } from "../ops/index.js";
import { type Draw, Tensor } from "../tensor/index.js";
import type { Initializer } from "./module-tensor.js";

/** The function after the layer; its gain preserves the variance of the activations. */
export type Nonlinearity = "linear" | "sigmoid" | "tanh" | "relu" | "selu" | "leakyRelu";

/** Options of Kaiming initialisers. */
export interface KaimingOptions {
  /** The negative slope of the leaky ReLU after the layer. */
  readonly a?: number;
  /** Preserve the variance of the forward (fanIn) or backward pass (fanOut). */
  readonly mode?: "fanIn" | "fanOut";
  readonly nonlinearity?: Nonlinearity;
}

const kaimingOptionNames: OptionNames<KaimingOptions> = { a: true, mode: true, nonlinearity: true };

/** Options of Xavier initialisers. */
export interface XavierOptions {
  readonly gain?: number;
}

const xavierOptionNames: OptionNames<XavierOptions> = { gain: true };

/** Options of `orthogonal`. */
export interface OrthogonalOptions {
  /** The norm of each row or column. */
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
export function zeros(...rest: readonly never[]): Initializer {
  rejectTensor("zeros", rest[0]);
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
export function ones(...rest: readonly never[]): Initializer {
  rejectTensor("ones", rest[0]);
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
  rejectTensor("constant", value);
  const values = (shape: Shape): Float32Array => new Float32Array(sizeOf(shape)).fill(value);
  return Object.assign(values, { isZero: Object.is(value, 0) });
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
  rejectTensor("uniform", low);
  if (!(low <= high) || !Number.isFinite(high - low)) {
    throw new HoldfastError(
      "BAD_ARGUMENT",
      `uniform(${low}, ${high}): the bounds must be finite, the lower first.`,
    );
  }
  return randomly(() => ({ kind: "uniform", low, high }));
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
  rejectTensor("normal", mean);
  if (!Number.isFinite(mean) || !(std >= 0) || !Number.isFinite(std)) {
    throw new HoldfastError(
      "BAD_ARGUMENT",
      `normal(${mean}, ${std}): the mean must be finite, and the standard deviation finite and not negative.`,
    );
  }
  return randomly(() => ({ kind: "normal", mean, std }));
}

/**
 * Normal, limited to values from `low` to `high`. Values outside are not moved to the bounds: the distribution has none there.
 *
 * @example
 * ```ts
 * import { nn } from "holdfast";
 * const values = Array.from(new nn.Parameter([100], nn.init.truncNormal(0, 0.02, -0.04, 0.04)).initialValues());
 * console.log(values.every((value) => Math.abs(value) <= Math.fround(0.04))); // → true
 * ```
 */
export function truncNormal(mean = 0, std = 1, low = -2, high = 2): Initializer {
  rejectTensor("truncNormal", mean);
  const name = `truncNormal(${mean}, ${std}, ${low}, ${high})`;
  if (!Number.isFinite(mean) || !(std > 0) || !Number.isFinite(std) || !(low < high)) {
    throw new HoldfastError(
      "BAD_ARGUMENT",
      `${name}: the mean must be finite, the standard deviation finite and positive, and the lower bound below the upper.`,
    );
  }
  const random = { kind: "truncNormal", mean, std, low, high } as const;
  // Below the smallest normal number a probability has too few digits to be divided among the values.
  if (truncationOf(random).span < 2 ** -960) {
    throw new HoldfastError(
      "BAD_ARGUMENT",
      `${name}: the normal distribution has almost no values between the bounds. Move them closer to the mean.`,
    );
  }
  return randomly(() => random);
}

/**
 * A matrix with orthogonal rows, or with orthogonal columns if it has more rows than columns; each has the norm `gain`. The axes after the
 * first count as one. It is uniform over all such matrices.
 *
 * @example
 * ```ts
 * import { device, eye, nn } from "holdfast";
 * const cpu = await device("cpu");
 * const { weight } = new nn.Linear(3, 2).to(cpu);
 * weight.initialize(nn.init.orthogonal());
 * console.log(weight.matmul(weight.transpose(0, 1)).sub(eye(2)).abs().amax().item() < 1e-6); // → true
 * cpu.close();
 * ```
 */
export function orthogonal(options: OrthogonalOptions = {}): Initializer {
  rejectTensor("orthogonal", options);
  const { gain = 1 } = checkOptions("nn.init.orthogonal", options, { gain: true });
  requireGain("orthogonal", gain);
  return randomly((shape) => {
    const [rows = 1, ...rest] = shape;
    if (shape.length < 2) {
      throw new HoldfastError(
        "BAD_SHAPE",
        `orthogonal: a parameter of shape ${formatShape(shape)} is not a matrix. Use uniform() or normal() for it.`,
      );
    }
    return { kind: "orthogonal", rows, columns: sizeOf(rest), gain };
  });
}

/**
 * Standard normal, with zeros in the row of a padding index.
 *
 * @internal
 */
export function normalWithPadding(row: number): Initializer {
  return randomly((shape) => {
    const count = sizeOf(shape.slice(1));
    return {
      kind: "padded",
      values: { kind: "normal", mean: 0, std: 1 },
      zeros: { first: row * count, count },
    };
  });
}

/** An initializer whose values the host and every device can draw, with the same bits. */
function randomly(random: (shape: Shape) => Random): Initializer {
  return Object.assign((shape: Shape, draw: Draw) => drawOnHost(random(shape), draw, sizeOf(shape)), {
    random,
  });
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
export function kaimingUniform(given: KaimingOptions = {}): Initializer {
  rejectTensor("kaimingUniform", given);
  const { a = Math.sqrt(5), ...options } = checkOptions("nn.init.kaimingUniform", given, kaimingOptionNames);
  return randomly((shape) => {
    const bound = Math.sqrt(3) * kaimingDeviation("kaimingUniform", shape, { a, ...options });
    return { kind: "uniform", low: -bound, high: bound };
  });
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
  rejectTensor("kaimingNormal", options);
  checkOptions("nn.init.kaimingNormal", options, kaimingOptionNames);
  return randomly((shape) => ({
    kind: "normal",
    mean: 0,
    std: kaimingDeviation("kaimingNormal", shape, options),
  }));
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
  rejectTensor("xavierUniform", options);
  checkOptions("nn.init.xavierUniform", options, xavierOptionNames);
  return randomly((shape) => {
    const bound = Math.sqrt(3) * xavierDeviation("xavierUniform", shape, options);
    return { kind: "uniform", low: -bound, high: bound };
  });
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
  rejectTensor("xavierNormal", options);
  checkOptions("nn.init.xavierNormal", options, xavierOptionNames);
  return randomly((shape) => ({
    kind: "normal",
    mean: 0,
    std: xavierDeviation("xavierNormal", shape, options),
  }));
}

/**
 * Ones on the diagonal of a matrix, and zeros elsewhere: a linear layer that returns its input.
 *
 * @example
 * ```ts
 * import { nn } from "holdfast";
 * console.log(new nn.Parameter([2, 3], nn.init.eye()).initialValues()); // → Float32Array(6) [ 1, 0, 0, 0, 1, 0 ]
 * ```
 */
export function eye(...given: readonly never[]): Initializer {
  rejectTensor("eye", given[0]);
  return (shape) => {
    const [rows = 0, columns = 0] = shape;
    if (shape.length !== 2)
      throw new HoldfastError(
        "BAD_SHAPE",
        `nn.init.eye: the shape is ${formatShape(shape)}; it is for matrices.`,
      );
    const values = new Float32Array(rows * columns);
    for (let at = 0; at < Math.min(rows, columns); at++) values[at * columns + at] = 1;
    return values;
  };
}

/**
 * A one in the middle of the kernel from each channel to itself, and zeros elsewhere: a convolution that returns its input. In each of `groups` groups
 * of outputs, the first ones return the inputs of the group.
 *
 * @example
 * ```ts
 * import { device, nn, tensor } from "holdfast";
 * const cpu = await device("cpu");
 * const layer = new nn.Conv1d(2, 2, 3, { padding: 1, bias: false }).to(cpu);
 * layer.weight.initialize(nn.init.dirac());
 * console.log(layer.forward(tensor([[1, 2, 3], [4, 5, 6]])).tolist()); // → [ [ 1, 2, 3 ], [ 4, 5, 6 ] ]
 * cpu.close();
 * ```
 */
export function dirac(groups = 1): Initializer {
  rejectTensor("dirac", groups);
  return (shape) => {
    const [out = 0, inner = 0, ...kernel] = shape;
    if (
      kernel.length < 1 ||
      kernel.length > 3 ||
      !(Number.isSafeInteger(groups) && groups > 0 && out % groups === 0)
    ) {
      throw new HoldfastError(
        "BAD_SHAPE",
        `nn.init.dirac: ${groups} groups of a weight ${formatShape(shape)}. It is for convolutions; groups must divide their output channels.`,
      );
    }
    const area = sizeOf(kernel);
    const middle = kernel.reduce((place, size) => place * size + Math.floor(size / 2), 0);
    const values = new Float32Array(sizeOf(shape));
    const rows = out / groups;
    for (let group = 0; group < groups; group++) {
      for (let channel = 0; channel < Math.min(rows, inner); channel++)
        values[((group * rows + channel) * inner + channel) * area + middle] = 1;
    }
    return values;
  };
}

/** PyTorch's functions fill a tensor; these make initializers. */
function rejectTensor(name: string, given: unknown): void {
  if (!(given instanceof Tensor)) return;
  throw new HoldfastError(
    "BAD_ARGUMENT",
    `nn.init.${name} got a tensor, but it makes an initializer. To fill a parameter, write weight.initialize(nn.init.${name}(…)).`,
  );
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
    case "selu":
      return 3 / 4;
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
  requireGain(name, gain);
  return fan > 0 ? gain / Math.sqrt(fan) : 0;
}

function requireGain(name: string, gain: number): void {
  if (Number.isFinite(gain) && gain >= 0) return;
  throw new HoldfastError(
    "BAD_ARGUMENT",
    `${name}: the gain is ${gain}; it must be finite and not negative.`,
  );
}
