/** Activations as functions. */

import { checkOptions, type OptionNames } from "../../errors/index.js";
import { smoothActivations } from "../../ops/index.js";
import type { Tensor } from "../../tensor/index.js";

/** Options of `softplus`. */
export interface SoftplusOptions {
  /** log(1 + e^(beta · x)) / beta. Default: 1. */
  readonly beta?: number;
  /** x itself where beta · x is above this. Default: 20. */
  readonly threshold?: number;
}

export const softplusOptionNames: OptionNames<SoftplusOptions> = { beta: true, threshold: true };

/**
 * max(x, 0).
 *
 * @example
 * ```ts
 * import { device, nn, tensor } from "holdfast";
 * const cpu = await device("cpu");
 * console.log(nn.functional.relu(tensor([-1, 2])).tolist()); // → [ 0, 2 ]
 * cpu.close();
 * ```
 */
export function relu(x: Tensor): Tensor {
  return x.relu();
}

/**
 * x if positive, else x times a slope. Default slope: 0.01.
 *
 * @example
 * ```ts
 * import { device, nn, tensor } from "holdfast";
 * const cpu = await device("cpu");
 * console.log(nn.functional.leakyRelu(tensor([-2, 2]), 0.5).tolist()); // → [ -1, 2 ]
 * cpu.close();
 * ```
 */
export function leakyRelu(x: Tensor, negativeSlope = 0.01): Tensor {
  return x.leakyRelu(negativeSlope);
}

/**
 * x·Φ(x) by the error function, or by GPT-2's "tanh" approximation.
 *
 * @example
 * ```ts
 * import { device, nn, tensor } from "holdfast";
 * const cpu = await device("cpu");
 * const x = tensor([1]);
 * console.log(nn.functional.gelu(x).item().toFixed(5)); // → 0.84134
 * console.log(nn.functional.gelu(x, "tanh").item().toFixed(5)); // → 0.84119
 * cpu.close();
 * ```
 */
export function gelu(x: Tensor, approximate: "none" | "tanh" = "none"): Tensor {
  return x.gelu(approximate);
}

/**
 * x·sigmoid(x).
 *
 * @example
 * ```ts
 * import { device, nn, tensor } from "holdfast";
 * const cpu = await device("cpu");
 * console.log(nn.functional.silu(tensor([2])).item().toFixed(4)); // → 1.7616
 * cpu.close();
 * ```
 */
export function silu(x: Tensor): Tensor {
  return x.silu();
}

/**
 * 1/(1 + e⁻ˣ): from 0 to 1.
 *
 * @example
 * ```ts
 * import { device, nn, tensor } from "holdfast";
 * const cpu = await device("cpu");
 * const chances = nn.functional.sigmoid(tensor([-1000, 0, 1000]));
 * console.log(chances.tolist()); // → [ 0, 0.5, 1 ]
 * cpu.close();
 * ```
 */
export function sigmoid(x: Tensor): Tensor {
  return x.sigmoid();
}

/**
 * The hyperbolic tangent: from −1 to 1.
 *
 * @example
 * ```ts
 * import { device, nn, tensor } from "holdfast";
 * const cpu = await device("cpu");
 * console.log(nn.functional.tanh(tensor([-50, 0, 50])).tolist()); // → [ -1, 0, 1 ]
 * cpu.close();
 * ```
 */
export function tanh(x: Tensor): Tensor {
  return x.tanh();
}

/**
 * log(1 + eˣ), a smooth relu.
 *
 * @example
 * ```ts
 * import { device, nn, tensor } from "holdfast";
 * const cpu = await device("cpu");
 * console.log(nn.functional.softplus(tensor([0])).item().toFixed(4)); // → 0.6931
 * cpu.close();
 * ```
 */
export function softplus(x: Tensor, options: SoftplusOptions = {}): Tensor {
  const { beta = 1, threshold = 20 } = checkOptions("softplus", options, softplusOptionNames);
  if (beta === 1 && threshold === 20) return x.softplus();
  return x.device.apply(smoothActivations.scaledSoftplus, [x], { beta, threshold });
}

/**
 * Exponentials along an axis, divided by their sum.
 *
 * @example
 * ```ts
 * import { device, nn, tensor } from "holdfast";
 * const cpu = await device("cpu");
 * console.log(nn.functional.softmax(tensor([[0, 0], [1000, 0]]), -1).tolist()); // → [ [ 0.5, 0.5 ], [ 1, 0 ] ]
 * cpu.close();
 * ```
 */
export function softmax(x: Tensor, axis: number): Tensor {
  return x.softmax(axis);
}

/**
 * The logarithm of `softmax`, accurate even where that underflows to 0.
 *
 * @example
 * ```ts
 * import { device, nn, tensor } from "holdfast";
 * const cpu = await device("cpu");
 * const logits = tensor([[2, 2], [0, -500]]);
 * console.log(nn.functional.logSoftmax(logits, -1).select(0, 1).tolist()); // → [ 0, -500 ]
 * cpu.close();
 * ```
 */
export function logSoftmax(x: Tensor, axis: number): Tensor {
  return x.logSoftmax(axis);
}
