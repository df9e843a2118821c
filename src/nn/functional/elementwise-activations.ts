/** More activations as functions: of exponentials, of pieces of lines, and with a gate. Each is one kernel. */

import { checkOptions, HoldfastError, type OptionNames } from "../../errors/index.js";
import {
  type EluAttributes,
  formatShape,
  gatedActivations,
  type HardtanhAttributes,
  hardActivations,
  smoothActivations,
} from "../../ops/index.js";
import { rand, type Tensor } from "../../tensor/index.js";

/** Options of `rrelu`. */
export interface RReluOptions {
  /** Default: 1/8. */
  readonly lower?: number;
  /** Default: 1/3. */
  readonly upper?: number;
  /** Draw random slopes. Default: false. */
  readonly training?: boolean;
}

const rReluOptionNames: OptionNames<RReluOptions> = { lower: true, upper: true, training: true };

/** The constants of Klambauer et al., "Self-Normalizing Neural Networks". */
const seluAttributes: EluAttributes = {
  alpha: 1.6732632423543772,
  scale: 1.0507009873554805,
  inputScale: 1,
};

const eluOf = (alpha: number): EluAttributes => ({ alpha, scale: 1, inputScale: 1 });

function celuOf(alpha: number): EluAttributes {
  if (alpha !== 0) return { alpha, scale: 1, inputScale: 1 / alpha };
  throw new HoldfastError("BAD_ARGUMENT", "celu: alpha is 0, and divides x. Pass another number.");
}

function rangeOf(min: number, max: number): HardtanhAttributes {
  if (min <= max) return { min, max };
  throw new HoldfastError(
    "BAD_ARGUMENT",
    `hardtanh: a range from ${min} to ${max} is empty. Pass min ≤ max.`,
    {
      numbers: { min, max },
    },
  );
}

function halfWidth(lambda: number): number {
  if (lambda >= 0) return lambda;
  throw new HoldfastError("BAD_ARGUMENT", `softshrink: lambda is ${lambda}; pass 0 or more.`, {
    numbers: { lambda },
  });
}

function randomSlopes(x: Tensor, lower: number, upper: number): Tensor {
  return rand(x.shape, { device: x.device })
    .mul(upper - lower)
    .add(lower)
    .to(x.dtype);
}

/**
 * x where it is positive, and alpha · (eˣ − 1) elsewhere. Default alpha: 1.
 *
 * @example
 * ```ts
 * import { device, nn, tensor } from "holdfast";
 * const cpu = await device("cpu");
 * console.log(nn.functional.elu(tensor([-1000, 2])).tolist()); // → [ -1, 2 ]
 * cpu.close();
 * ```
 */
export function elu(x: Tensor, alpha = 1): Tensor {
  return x.device.apply(smoothActivations.elu, [x], eluOf(alpha));
}

/**
 * `elu` in place.
 *
 * @example
 * ```ts
 * import { device, nn, tensor } from "holdfast";
 * const cpu = await device("cpu");
 * console.log(nn.functional.elu_(tensor([-1000, 2])).tolist()); // → [ -1, 2 ]
 * cpu.close();
 * ```
 */
export function elu_(x: Tensor, alpha = 1): Tensor {
  return x.device.applyInPlace(smoothActivations.elu, x, [x], eluOf(alpha));
}

/**
 * ELU with the alpha and the scale that keep the mean at 0 and the variance at 1.
 *
 * @example
 * ```ts
 * import { device, nn, tensor } from "holdfast";
 * const cpu = await device("cpu");
 * console.log(nn.functional.selu(tensor([1])).item().toFixed(4)); // → 1.0507
 * cpu.close();
 * ```
 */
export function selu(x: Tensor): Tensor {
  return x.device.apply(smoothActivations.elu, [x], seluAttributes);
}

/**
 * `selu` in place.
 *
 * @example
 * ```ts
 * import { device, nn, tensor } from "holdfast";
 * const cpu = await device("cpu");
 * console.log(nn.functional.selu_(tensor([1])).item().toFixed(4)); // → 1.0507
 * cpu.close();
 * ```
 */
export function selu_(x: Tensor): Tensor {
  return x.device.applyInPlace(smoothActivations.elu, x, [x], seluAttributes);
}

/**
 * x where it is positive, and alpha · (e^(x / alpha) − 1) elsewhere. Default alpha: 1.
 *
 * @example
 * ```ts
 * import { device, nn, tensor } from "holdfast";
 * const cpu = await device("cpu");
 * console.log(nn.functional.celu(tensor([-1000, 2]), 0.5).tolist()); // → [ -0.5, 2 ]
 * cpu.close();
 * ```
 */
export function celu(x: Tensor, alpha = 1): Tensor {
  return x.device.apply(smoothActivations.elu, [x], celuOf(alpha));
}

/**
 * `celu` in place.
 *
 * @example
 * ```ts
 * import { device, nn, tensor } from "holdfast";
 * const cpu = await device("cpu");
 * console.log(nn.functional.celu_(tensor([-1000, 2]), 0.5).tolist()); // → [ -0.5, 2 ]
 * cpu.close();
 * ```
 */
export function celu_(x: Tensor, alpha = 1): Tensor {
  return x.device.applyInPlace(smoothActivations.elu, x, [x], celuOf(alpha));
}

/**
 * x · tanh(softplus(x)).
 *
 * @example
 * ```ts
 * import { device, nn, tensor } from "holdfast";
 * const cpu = await device("cpu");
 * console.log(nn.functional.mish(tensor([1])).item().toFixed(4)); // → 0.8651
 * cpu.close();
 * ```
 */
export function mish(x: Tensor): Tensor {
  return x.device.apply(smoothActivations.mish, [x]);
}

/**
 * log(sigmoid(x)), which does not underflow.
 *
 * @example
 * ```ts
 * import { device, nn, tensor } from "holdfast";
 * const cpu = await device("cpu");
 * console.log(nn.functional.logsigmoid(tensor([-1000])).tolist()); // → [ -1000 ]
 * cpu.close();
 * ```
 */
export function logsigmoid(x: Tensor): Tensor {
  return x.device.apply(smoothActivations.logSigmoid, [x]);
}

/**
 * x / (1 + |x|).
 *
 * @example
 * ```ts
 * import { device, nn, tensor } from "holdfast";
 * const cpu = await device("cpu");
 * console.log(nn.functional.softsign(tensor([-1, 3])).tolist()); // → [ -0.5, 0.75 ]
 * cpu.close();
 * ```
 */
export function softsign(x: Tensor): Tensor {
  return x.device.apply(smoothActivations.softsign, [x]);
}

/**
 * x − tanh(x).
 *
 * @example
 * ```ts
 * import { device, nn, tensor } from "holdfast";
 * const cpu = await device("cpu");
 * console.log(nn.functional.tanhshrink(tensor([100])).tolist()); // → [ 99 ]
 * cpu.close();
 * ```
 */
export function tanhshrink(x: Tensor): Tensor {
  return x.device.apply(smoothActivations.tanhshrink, [x]);
}

/**
 * x, limited to the range from `min` to `max`. Default: −1 to 1.
 *
 * @example
 * ```ts
 * import { device, nn, tensor } from "holdfast";
 * const cpu = await device("cpu");
 * console.log(nn.functional.hardtanh(tensor([-2, 0.5, 2])).tolist()); // → [ -1, 0.5, 1 ]
 * cpu.close();
 * ```
 */
export function hardtanh(x: Tensor, min = -1, max = 1): Tensor {
  return x.device.apply(hardActivations.hardtanh, [x], rangeOf(min, max));
}

/**
 * `hardtanh` in place.
 *
 * @example
 * ```ts
 * import { device, nn, tensor } from "holdfast";
 * const cpu = await device("cpu");
 * console.log(nn.functional.hardtanh_(tensor([-2, 0.5, 2])).tolist()); // → [ -1, 0.5, 1 ]
 * cpu.close();
 * ```
 */
export function hardtanh_(x: Tensor, min = -1, max = 1): Tensor {
  return x.device.applyInPlace(hardActivations.hardtanh, x, [x], rangeOf(min, max));
}

/**
 * x, limited to the range from 0 to 6.
 *
 * @example
 * ```ts
 * import { device, nn, tensor } from "holdfast";
 * const cpu = await device("cpu");
 * console.log(nn.functional.relu6(tensor([-2, 5, 9])).tolist()); // → [ 0, 5, 6 ]
 * cpu.close();
 * ```
 */
export function relu6(x: Tensor): Tensor {
  return hardtanh(x, 0, 6);
}

/**
 * x · relu6(x + 3) / 6.
 *
 * @example
 * ```ts
 * import { device, nn, tensor } from "holdfast";
 * const cpu = await device("cpu");
 * console.log(nn.functional.hardswish(tensor([0, 4])).tolist()); // → [ 0, 4 ]
 * cpu.close();
 * ```
 */
export function hardswish(x: Tensor): Tensor {
  return x.device.apply(hardActivations.hardswish, [x]);
}

/**
 * relu6(x + 3) / 6.
 *
 * @example
 * ```ts
 * import { device, nn, tensor } from "holdfast";
 * const cpu = await device("cpu");
 * console.log(nn.functional.hardsigmoid(tensor([-4, 0, 4])).tolist()); // → [ 0, 0.5, 1 ]
 * cpu.close();
 * ```
 */
export function hardsigmoid(x: Tensor): Tensor {
  return x.device.apply(hardActivations.hardsigmoid, [x]);
}

/**
 * 0 from −lambda to lambda, and x elsewhere. Default lambda: 0.5.
 *
 * @example
 * ```ts
 * import { device, nn, tensor } from "holdfast";
 * const cpu = await device("cpu");
 * console.log(nn.functional.hardshrink(tensor([-2, 0.25, 2])).tolist()); // → [ -2, 0, 2 ]
 * cpu.close();
 * ```
 */
export function hardshrink(x: Tensor, lambda = 0.5): Tensor {
  return x.device.apply(hardActivations.hardshrink, [x], { lambda });
}

/**
 * 0 from −lambda to lambda, and x, moved towards 0 by lambda, elsewhere. Default lambda: 0.5.
 *
 * @example
 * ```ts
 * import { device, nn, tensor } from "holdfast";
 * const cpu = await device("cpu");
 * console.log(nn.functional.softshrink(tensor([-2, 0.25, 2])).tolist()); // → [ -1.5, 0, 1.5 ]
 * cpu.close();
 * ```
 */
export function softshrink(x: Tensor, lambda = 0.5): Tensor {
  return x.device.apply(hardActivations.softshrink, [x], { lambda: halfWidth(lambda) });
}

/**
 * x above the threshold, and `value` elsewhere.
 *
 * @example
 * ```ts
 * import { device, nn, tensor } from "holdfast";
 * const cpu = await device("cpu");
 * console.log(nn.functional.threshold(tensor([1, 3]), 2, -5).tolist()); // → [ -5, 3 ]
 * cpu.close();
 * ```
 */
export function threshold(x: Tensor, threshold: number, value: number): Tensor {
  return x.device.apply(hardActivations.threshold, [x], { threshold, value });
}

/**
 * `threshold` in place.
 *
 * @example
 * ```ts
 * import { device, nn, tensor } from "holdfast";
 * const cpu = await device("cpu");
 * console.log(nn.functional.threshold_(tensor([1, 3]), 2, -5).tolist()); // → [ -5, 3 ]
 * cpu.close();
 * ```
 */
export function threshold_(x: Tensor, threshold: number, value: number): Tensor {
  return x.device.applyInPlace(hardActivations.threshold, x, [x], { threshold, value });
}

/**
 * x where it is positive, and weight · x elsewhere. The weight has one element, or one for each channel of [N, C, …].
 *
 * @example
 * ```ts
 * import { device, nn, tensor } from "holdfast";
 * const cpu = await device("cpu");
 * console.log(nn.functional.prelu(tensor([[-4, -4]]), tensor([0.25, 0.5])).tolist()); // → [ [ -1, -2 ] ]
 * cpu.close();
 * ```
 */
export function prelu(x: Tensor, weight: Tensor): Tensor {
  const perChannel = weight.numel > 1 && x.ndim > 1;
  const slope = perChannel ? weight.reshape([-1, ...x.shape.slice(2).map(() => 1)]) : weight;
  return x.device.apply(gatedActivations.prelu, [x, slope]);
}

/**
 * The first half along an axis times the sigmoid of the second half. Default axis: the last one.
 *
 * @example
 * ```ts
 * import { device, nn, tensor } from "holdfast";
 * const cpu = await device("cpu");
 * console.log(nn.functional.glu(tensor([3, 5, 0, 1000])).tolist()); // → [ 1.5, 5 ]
 * cpu.close();
 * ```
 */
export function glu(x: Tensor, axis = -1): Tensor {
  const size = x.shape.at(axis) ?? 0;
  if (size % 2 !== 0 || x.ndim === 0) {
    throw new HoldfastError(
      "BAD_SHAPE",
      `glu: axis ${axis} of ${formatShape(x.shape)} has no two halves. Pass an axis of even size.`,
      {
        numbers: { axis, size },
      },
    );
  }
  const half = size / 2;
  return x.device.apply(gatedActivations.sigmoidGate, [x.narrow(axis, 0, half), x.narrow(axis, half, half)]);
}

/**
 * The softmax of −x: small elements have large shares.
 *
 * @example
 * ```ts
 * import { device, nn, tensor } from "holdfast";
 * const cpu = await device("cpu");
 * console.log(nn.functional.softmin(tensor([5, 5]), 0).tolist()); // → [ 0.5, 0.5 ]
 * cpu.close();
 * ```
 */
export function softmin(x: Tensor, axis: number): Tensor {
  return x.neg().softmax(axis);
}

/**
 * In training: x where it is positive, and a random slope from `lower` to `upper` times x elsewhere. Otherwise the slope is their mean.
 *
 * @example
 * ```ts
 * import { device, nn, tensor } from "holdfast";
 * const cpu = await device("cpu");
 * console.log(nn.functional.rrelu(tensor([-8, 2]), { lower: 0, upper: 0.5 }).tolist()); // → [ -2, 2 ]
 * cpu.close();
 * ```
 */
export function rrelu(x: Tensor, options: RReluOptions = {}): Tensor {
  const { lower = 1 / 8, upper = 1 / 3, training = false } = checkOptions("rrelu", options, rReluOptionNames);
  if (!training) return x.leakyRelu((lower + upper) / 2);
  return x.device.apply(gatedActivations.prelu, [x, randomSlopes(x, lower, upper)]);
}

/**
 * `rrelu` in place.
 *
 * @example
 * ```ts
 * import { device, nn, tensor } from "holdfast";
 * const cpu = await device("cpu");
 * console.log(nn.functional.rrelu_(tensor([-8, 2]), { lower: 0, upper: 0.5 }).tolist()); // → [ -2, 2 ]
 * cpu.close();
 * ```
 */
export function rrelu_(x: Tensor, options: RReluOptions = {}): Tensor {
  const {
    lower = 1 / 8,
    upper = 1 / 3,
    training = false,
  } = checkOptions("rrelu_", options, rReluOptionNames);
  if (!training) return x.leakyRelu_((lower + upper) / 2);
  return x.device.applyInPlace(gatedActivations.prelu, x, [x, randomSlopes(x, lower, upper)]);
}
