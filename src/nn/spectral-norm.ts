/** Spectral normalization: a weight divided by its largest singular value. */

import { currentRecomputation, noGrad } from "../autograd/index.js";
import { checkOptions, HoldfastError } from "../errors/index.js";
import { axisOf, type Shape } from "../ops/index.js";
import type { Draw, Tensor } from "../tensor/index.js";
import { Buffer } from "./buffer.js";
import { computeWeight, parameterOf, restoreWeight } from "./computed-weight.js";
import { normal } from "./init.js";
import { ConvTranspose1d, ConvTranspose2d, ConvTranspose3d } from "./layers/index.js";
import type { Module } from "./module.js";

/** Options of `spectralNorm`. */
export interface SpectralNormOptions {
  /** The parameter's name. Default: "weight". */
  readonly name?: string;
  /** Steps of the power iteration in each forward pass in training mode. Default: 1. */
  readonly nPowerIterations?: number;
  /** Added to norms. Default: 1e-12. */
  readonly eps?: number;
  /** The axis of the weight's rows, as a matrix. Default: 0, and 1 for transposed convolutions. */
  readonly axis?: number;
}

/**
 * Divides a module's weight by its largest singular value. That is estimated by a power iteration, which continues with each forward pass in
 * training mode. The learned parameter is `weightOrig`; the estimates are the buffers `weightU` and `weightV`.
 *
 * @example
 * ```ts
 * import { device, linalg, nn, noGrad, ones } from "holdfast";
 * const cpu = await device("cpu");
 * const layer = nn.utils.spectralNorm(new nn.Linear(3, 2)).to(cpu);
 * for (let pass = 0; pass < 50; pass++) layer.forward(ones([1, 3]));
 * console.log(linalg.matrixNorm(layer.weight.detach(), { ord: 2 }).item().toFixed(3)); // → 1.000
 * cpu.close();
 * ```
 */
export function spectralNorm<M extends Module>(module: M, options: SpectralNormOptions = {}): M {
  const {
    name = "weight",
    nPowerIterations = 1,
    eps = 1e-12,
    axis,
  } = checkOptions("nn.utils.spectralNorm", options, {
    name: true,
    nPowerIterations: true,
    eps: true,
    axis: true,
  });
  if (!Number.isSafeInteger(nPowerIterations) || nPowerIterations < 1) {
    throw new HoldfastError(
      "BAD_ARGUMENT",
      `spectralNorm: nPowerIterations is ${nPowerIterations}; pass a whole number, 1 or more.`,
    );
  }
  const parameter = parameterOf("spectralNorm", module, name);
  const rowAxis = axisOf("spectralNorm", axis ?? (isTransposed(module) ? 1 : 0), parameter.ndim);
  const rows = parameter.shape[rowAxis] ?? 1;
  const { dtype } = parameter;
  const u = new Buffer([rows], unitVector, { dtype });
  const v = new Buffer([parameter.numel / rows], unitVector, { dtype });
  const matrix = (): Tensor => parameter.movedim(rowAxis, 0).flatten(1); // [rows, rest]
  const iterate = (): void => {
    // A function that runs again for backward must not iterate twice.
    if (!module.isTraining || currentRecomputation()?.isRunningAgain) return;
    noGrad(() => {
      const unit = (x: Tensor): Tensor => x.div(x.norm().clamp(eps));
      for (let iteration = 0; iteration < nPowerIterations; iteration++) {
        v.copy_(unit(matrix().t().mv(u)));
        u.copy_(unit(matrix().mv(v)));
      }
    });
  };
  // Copies: the next pass changes u and v, before backward of this one.
  const compute = (): Tensor => parameter.div(u.clone().dot(matrix().mv(v.clone())));
  return computeWeight(module, name, {
    kind: "spectralNorm",
    parameter,
    parts: { [`${name}Orig`]: parameter, [`${name}U`]: u, [`${name}V`]: v },
    compute,
    hook: module.registerForwardPreHook(iterate),
  });
}

/**
 * Undoes `spectralNorm`: the parameter `weightOrig` is the module's weight again, with the computed values.
 *
 * @example
 * ```ts
 * import { device, nn } from "holdfast";
 * const cpu = await device("cpu");
 * const layer = nn.utils.spectralNorm(new nn.Linear(3, 2)).to(cpu);
 * nn.utils.removeSpectralNorm(layer);
 * console.log(Object.keys(layer.stateDict())); // → [ 'bias', 'weight' ]
 * cpu.close();
 * ```
 */
export function removeSpectralNorm<M extends Module>(module: M, name = "weight"): M {
  return restoreWeight("spectralNorm", module, name);
}

function isTransposed(module: Module): boolean {
  return [ConvTranspose1d, ConvTranspose2d, ConvTranspose3d].some((layer) => module instanceof layer);
}

/** A random vector of length 1. */
function unitVector(shape: Shape, draw: Draw): Float64Array {
  const values = Float64Array.from(normal()(shape, draw));
  const length = Math.hypot(...values);
  return values.map((value) => value / length);
}
