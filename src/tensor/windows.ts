/** Window functions of signal processing. */

import { checkOptions, HoldfastError, type OptionNames } from "../errors/index.js";
import { fromTyped, type TensorOptions } from "./creation.js";
import type { Tensor } from "./tensor.js";

/** Options of windows. */
export interface WindowOptions extends TensorOptions {
  /** True for the first `length` points of a window with one more, for spectra. Default: true. */
  readonly periodic?: boolean;
}

const windowOptionNames: OptionNames<WindowOptions> = {
  periodic: true,
  dtype: true,
  device: true,
  requiresGrad: true,
};

/** `length` values of a function of the phase, from 0 at the first point to 1 at the last. */
function windowOf(
  op: string,
  length: number,
  { periodic = true, ...options }: WindowOptions,
  valueAt: (phase: number) => number,
): Tensor {
  if (!Number.isInteger(length) || length < 0) {
    throw new HoldfastError("BAD_ARGUMENT", `${op} of length ${length}; pass a whole number, 0 or more.`);
  }
  const intervals = periodic ? length : length - 1;
  const values = Float64Array.from({ length }, (_, index) => (length === 1 ? 1 : valueAt(index / intervals)));
  return fromTyped(values, [length], { dtype: "f32", ...options });
}

const cosine = (phase: number, times = 1): number => Math.cos(2 * Math.PI * times * phase);

/**
 * The Hann window: (1 − cos 2πt) / 2.
 *
 * @example
 * ```ts
 * import { device, hannWindow } from "holdfast";
 * const cpu = await device("cpu");
 * console.log(hannWindow(4).tolist()); // → [ 0, 0.5, 1, 0.5 ]
 * cpu.close();
 * ```
 */
export function hannWindow(length: number, options: WindowOptions = {}): Tensor {
  checkOptions("hannWindow", options, windowOptionNames);
  return windowOf("hannWindow", length, options, (t) => 0.5 - 0.5 * cosine(t));
}

/**
 * The Hamming window: alpha − beta · cos 2πt. Defaults: 0.54 and 0.46.
 *
 * @example
 * ```ts
 * import { device, hammingWindow } from "holdfast";
 * const cpu = await device("cpu");
 * console.log(hammingWindow(2).sum().item().toFixed(2)); // → 1.08
 * cpu.close();
 * ```
 */
export function hammingWindow(
  length: number,
  given: WindowOptions & { readonly alpha?: number; readonly beta?: number } = {},
): Tensor {
  const {
    alpha = 0.54,
    beta = 0.46,
    ...options
  } = checkOptions("hammingWindow", given, {
    periodic: true,
    dtype: true,
    device: true,
    requiresGrad: true,
    alpha: true,
    beta: true,
  });
  return windowOf("hammingWindow", length, options, (t) => alpha - beta * cosine(t));
}

/**
 * The Blackman window: 0.42 − 0.5 · cos 2πt + 0.08 · cos 4πt.
 *
 * @example
 * ```ts
 * import { blackmanWindow, device } from "holdfast";
 * const cpu = await device("cpu");
 * console.log(blackmanWindow(2).tolist()); // → [ 0, 1 ]
 * cpu.close();
 * ```
 */
export function blackmanWindow(length: number, options: WindowOptions = {}): Tensor {
  checkOptions("blackmanWindow", options, windowOptionNames);
  return windowOf("blackmanWindow", length, options, (t) =>
    Math.max(0, 0.42 - 0.5 * cosine(t) + 0.08 * cosine(t, 2)),
  );
}

/**
 * The Bartlett window: a triangle.
 *
 * @example
 * ```ts
 * import { bartlettWindow, device } from "holdfast";
 * const cpu = await device("cpu");
 * console.log(bartlettWindow(4).tolist()); // → [ 0, 0.5, 1, 0.5 ]
 * cpu.close();
 * ```
 */
export function bartlettWindow(length: number, options: WindowOptions = {}): Tensor {
  checkOptions("bartlettWindow", options, windowOptionNames);
  return windowOf("bartlettWindow", length, options, (t) => 1 - Math.abs(2 * t - 1));
}

/**
 * The Kaiser window with the shape parameter `beta` (default: 12).
 *
 * @example
 * ```ts
 * import { device, kaiserWindow } from "holdfast";
 * const cpu = await device("cpu");
 * console.log(kaiserWindow(2, { beta: 0 }).tolist()); // → [ 1, 1 ]
 * cpu.close();
 * ```
 */
export function kaiserWindow(length: number, given: WindowOptions & { readonly beta?: number } = {}): Tensor {
  const { beta = 12, ...options } = checkOptions("kaiserWindow", given, {
    periodic: true,
    dtype: true,
    device: true,
    requiresGrad: true,
    beta: true,
  });
  return windowOf(
    "kaiserWindow",
    length,
    options,
    (t) => besselI0(beta * Math.sqrt(1 - (2 * t - 1) ** 2)) / besselI0(beta),
  );
}

/** The modified Bessel function I₀, by its power series: all terms are positive. */
function besselI0(x: number): number {
  let [sum, term] = [1, 1];
  for (let k = 1; term > sum * Number.EPSILON; k++) {
    term *= (x / (2 * k)) ** 2;
    sum += term;
  }
  return sum;
}
