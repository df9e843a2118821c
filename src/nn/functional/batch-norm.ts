/** Normalisations of channels as functions: batch, group, instance and local response norms. */

import { currentRecomputation, noGrad } from "../../autograd/index.js";
import { checkOptions, HoldfastError, type OptionNames } from "../../errors/index.js";
import {
  batchNorm as batchNormOp,
  groupNorm as groupNormOp,
  normalizeChannels,
  runningAverage,
} from "../../ops/index.js";
import { avgPool2d, type Tensor } from "../../tensor/index.js";
import { requireOwnStatistics } from "../running-statistics.js";

/** Options of `batchNorm`. */
export interface BatchNormFunctionOptions {
  /** Use the statistics of the input, and update the running ones. Default: false. */
  readonly training?: boolean;
  /** The share of the input's statistics in the running ones; a tensor of one element, too. Default: 0.1. */
  readonly momentum?: number | Tensor;
  /** Added to the variance. Default: 1e-5. */
  readonly eps?: number;
}

/**
 * Normalizes each channel of [N, C, …]: in training by the statistics of the input, otherwise by running ones. Then applies the optional
 * weight and bias, [C]. In training the running statistics, if there are any, move towards those of the input. Their variance is unbiased.
 *
 * @example
 * ```ts
 * import { device, nn, tensor, zeros, ones } from "holdfast";
 * const cpu = await device("cpu");
 * const [mean, variance] = [zeros([1]), ones([1])];
 * const x = tensor([[1], [3]]);
 * const options = { training: true, momentum: 0.5, eps: 0 };
 * console.log(nn.functional.batchNorm(x, mean, variance, null, null, options).tolist()); // → [ [ -1 ], [ 1 ] ]
 * console.log(mean.tolist(), variance.tolist()); // → [ 1 ] [ 1.5 ]
 * console.log(nn.functional.batchNorm(x, mean, ones([1]), null, null, { eps: 0 }).tolist()); // → [ [ 0 ], [ 2 ] ]
 * cpu.close();
 * ```
 */
export function batchNorm(
  x: Tensor,
  runningMean: Tensor | null,
  runningVar: Tensor | null,
  weight: Tensor | null = null,
  bias: Tensor | null = null,
  options: BatchNormFunctionOptions = {},
): Tensor {
  const {
    training = false,
    momentum = 0.1,
    eps = 1e-5,
  } = checkOptions("batchNorm", options, { training: true, momentum: true, eps: true });
  const affine = affineOf(weight, bias);
  if (!training) {
    const inverseStd = requireStatistics("batchNorm", runningVar).add(eps).rsqrt();
    const mean = requireStatistics("batchNorm", runningMean);
    const operands = [x, mean.detach(), inverseStd.detach(), ...affine];
    return shifted(x.device.apply(normalizeChannels, operands), weight, bias);
  }
  if (!runningMean && !runningVar)
    return shifted(x.device.apply(batchNormOp, [x, ...affine], { eps }), weight, bias);
  requireOwnStatistics("batchNorm", x, weight, bias);
  const [y, mean, , variance] = x.device.applyAll(batchNormOp, [x, ...affine], { eps });
  if (!y || !mean || !variance) throw new HoldfastError("BAD_ARGUMENT", "batchNorm has no statistics.");
  const count = x.numel / Math.max(1, mean.numel);
  if (count > 1) {
    update(runningMean, mean, momentum, 1);
    update(runningVar, variance, momentum, count / (count - 1));
  }
  return shifted(y, weight, bias);
}

/**
 * Normalizes the channels of each element of a batch [N, C, …] in groups: each group has mean 0 and standard deviation 1. Then applies the
 * optional weight and bias, [C].
 *
 * @example
 * ```ts
 * import { device, nn, tensor } from "holdfast";
 * const cpu = await device("cpu");
 * const x = tensor([[[1], [3], [10], [30]]]);
 * console.log(nn.functional.groupNorm(x, 2, null, null, 0).flatten().tolist()); // → [ -1, 1, -1, 1 ]
 * cpu.close();
 * ```
 */
export function groupNorm(
  x: Tensor,
  groups: number,
  weight: Tensor | null = null,
  bias: Tensor | null = null,
  eps = 1e-5,
): Tensor {
  const y = x.device.apply(groupNormOp, [x, ...affineOf(weight, bias)], { groups, eps });
  return shifted(y, weight, bias);
}

/** Options of `instanceNorm`. */
export interface InstanceNormFunctionOptions {
  /** Use the statistics of each input, and update the running ones if there are any. Default: true. */
  readonly useInputStats?: boolean;
  /** The share of the input's statistics in the running ones. Default: 0.1. */
  readonly momentum?: number | Tensor;
  /** Added to the variance. Default: 1e-5. */
  readonly eps?: number;
}

/**
 * Normalizes each channel of each element of a batch [N, C, …] by its own statistics, or by running ones. Then applies the optional weight
 * and bias, [C].
 *
 * @example
 * ```ts
 * import { device, nn, tensor } from "holdfast";
 * const cpu = await device("cpu");
 * const x = tensor([[[1, 3], [10, 30]]]);
 * console.log(nn.functional.instanceNorm(x, null, null, null, null, { eps: 0 }).tolist()); // → [ [ [ -1, 1 ], [ -1, 1 ] ] ]
 * cpu.close();
 * ```
 */
export function instanceNorm(
  x: Tensor,
  runningMean: Tensor | null = null,
  runningVar: Tensor | null = null,
  weight: Tensor | null = null,
  bias: Tensor | null = null,
  options: InstanceNormFunctionOptions = {},
): Tensor {
  const {
    useInputStats = true,
    momentum = 0.1,
    eps = 1e-5,
  } = checkOptions("instanceNorm", options, { useInputStats: true, momentum: true, eps: true });
  if (!useInputStats) return batchNorm(x, runningMean, runningVar, weight, bias, { eps });
  if (runningMean || runningVar) requireOwnStatistics("instanceNorm", x, weight, bias);
  const y = groupNorm(x, x.shape[1] ?? 1, weight, bias, eps);
  if ((runningMean || runningVar) && x.numel > 0) {
    noGrad(() => {
      const positions = x.to(runningMean?.dtype ?? "f32").flatten(2); // [N, C, L]
      update(runningMean, positions.mean([0, 2]), momentum, 1);
      update(runningVar, positions.var(2).mean(0), momentum, 1);
    });
  }
  return y;
}

/** Options of `localResponseNorm`. */
export interface LocalResponseNormOptions {
  /** Default: 1e-4. */
  readonly alpha?: number;
  /** Default: 0.75. */
  readonly beta?: number;
  /** Default: 1. */
  readonly k?: number;
}

export const localResponseNormOptionNames: OptionNames<LocalResponseNormOptions> = {
  alpha: true,
  beta: true,
  k: true,
};

/**
 * Divides each element of [N, C, …] by (k + alpha · the mean of the squares of `size` neighbouring channels) to the power of beta.
 *
 * @example
 * ```ts
 * import { device, nn, tensor } from "holdfast";
 * const cpu = await device("cpu");
 * const y = nn.functional.localResponseNorm(tensor([[[1], [3]]]), 1, { alpha: 1, beta: 1, k: 0 });
 * console.log(y.flatten()); // → tensor([1.         0.33333334], shape [2], f32, cpu)
 * cpu.close();
 * ```
 */
export function localResponseNorm(x: Tensor, size: number, options: LocalResponseNormOptions = {}): Tensor {
  const {
    alpha = 1e-4,
    beta = 0.75,
    k = 1,
  } = checkOptions("localResponseNorm", options, localResponseNormOptionNames);
  const [batch = 1, channels = 1, ...positions] = x.shape;
  if (x.ndim < 3 || !(Number.isSafeInteger(size) && size >= 1)) {
    throw new HoldfastError(
      "BAD_SHAPE",
      `localResponseNorm: size ${size} of a tensor with ${x.ndim} axes. Pass a size of 1 or more, and a tensor [N, C, …] with 3 axes or more.`,
      { numbers: { size, axes: x.ndim } },
    );
  }
  const length = positions.reduce((product, axis) => product * axis, 1);
  const squares = x.square().reshape([batch, 1, channels, length]);
  const padded = squares.pad([0, 0, Math.floor(size / 2), Math.floor((size - 1) / 2)]);
  const means = avgPool2d(padded, [size, 1], { stride: 1 }).reshape(x.shape);
  return x.div(means.mul(alpha).add(k).pow(beta));
}

/** The operands for weight and bias: a bias without a weight is added later. */
function affineOf(weight: Tensor | null, bias: Tensor | null): readonly Tensor[] {
  if (!weight) return [];
  return bias ? [weight, bias] : [weight];
}

/** Adds a bias that has no weight. */
function shifted(y: Tensor, weight: Tensor | null, bias: Tensor | null): Tensor {
  return weight || !bias ? y : y.add(bias.reshape([-1, ...y.shape.slice(2).map(() => 1)]));
}

function update(running: Tensor | null, value: Tensor, momentum: number | Tensor, factor: number): void {
  // A function that runs again for backward must not count its batch twice.
  if (!running || currentRecomputation()?.isRunningAgain) return;
  noGrad(() =>
    running.device.applyInPlace(runningAverage, running, [running, value.detach(), momentum], { factor }),
  );
}

function requireStatistics(name: string, running: Tensor | null): Tensor {
  if (running) return running;
  throw new HoldfastError(
    "BAD_ARGUMENT",
    `${name} without training needs a running mean and a running variance. Pass them, or set training.`,
  );
}
