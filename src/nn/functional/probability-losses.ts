/** Losses of probabilities, counts and distributions. */

import { checkOptions, HoldfastError, type OptionNames } from "../../errors/index.js";
import { type LossReduction, targetLosses } from "../../ops/index.js";
import type { Tensor } from "../../tensor/index.js";
import { where } from "../../tensor/index.js";
import { bceWithLogits, type LossOptions, lossOptionNames } from "./losses.js";
import { reduceLoss, requireSameShapes } from "./reduce-loss.js";

/** Options of `binaryCrossEntropy`. */
export interface ProbabilityLossOptions extends LossOptions {
  /** The weight of each element; it broadcasts. */
  readonly weight?: Tensor | null;
}

export const probabilityLossOptionNames: OptionNames<ProbabilityLossOptions> = {
  weight: true,
  reduction: true,
};

/**
 * The binary cross entropy of targets from 0 to 1, from probabilities. Prefer `bceWithLogits`, which is finite and accurate for any logits.
 *
 * @example
 * ```ts
 * import { device, nn, tensor } from "holdfast";
 * const cpu = await device("cpu");
 * console.log(nn.functional.binaryCrossEntropy(tensor([0.5]), tensor([1])).item().toFixed(4)); // → 0.6931
 * cpu.close();
 * ```
 */
export function binaryCrossEntropy(
  input: Tensor,
  target: Tensor,
  options: ProbabilityLossOptions = {},
): Tensor {
  const { weight, reduction } = checkOptions("binaryCrossEntropy", options, probabilityLossOptionNames);
  requireSameShapes("binaryCrossEntropy", { input, target });
  const losses = input.device.apply(targetLosses.probabilityCrossEntropy, [input, target]);
  return reduceLoss(weight ? losses.mul(weight) : losses, reduction);
}

/** Options of `klDiv`. */
export interface KLDivOptions {
  /** Mean over all elements (default), the sum divided by the batch size, the sum, or none. */
  readonly reduction?: LossReduction | "batchmean";
  /** True if the target has log probabilities. Default: false. */
  readonly logTarget?: boolean;
}

export const klDivOptionNames: OptionNames<KLDivOptions> = { reduction: true, logTarget: true };

/**
 * The Kullback–Leibler divergence target · (log(target) − input), for an input of log probabilities.
 *
 * @example
 * ```ts
 * import { device, nn, tensor } from "holdfast";
 * const cpu = await device("cpu");
 * const input = tensor([[0.5, 0.5]]).log();
 * const loss = nn.functional.klDiv(input, tensor([[1, 0]]), { reduction: "batchmean" });
 * console.log(loss.item().toFixed(4)); // → 0.6931
 * cpu.close();
 * ```
 */
export function klDiv(input: Tensor, target: Tensor, options: KLDivOptions = {}): Tensor {
  const { reduction = "mean", logTarget = false } = checkOptions("klDiv", options, klDivOptionNames);
  const op = logTarget ? targetLosses.klDivergenceOfLogs : targetLosses.klDivergence;
  const losses = input.device.apply(op, [input, target]);
  if (reduction === "batchmean") return losses.sum().div(input.shape[0] ?? 1);
  return reduceLoss(losses, reduction);
}

/** Options of `poissonNllLoss`. */
export interface PoissonNLLLossOptions extends LossOptions {
  /** The input is the logarithm of a rate. Default: true. */
  readonly logInput?: boolean;
  /** Add Stirling's approximation of log(target!). Default: false. */
  readonly full?: boolean;
  /** Added to a rate before its logarithm. Default: 1e-8. */
  readonly eps?: number;
}

export const poissonNLLLossOptionNames: OptionNames<PoissonNLLLossOptions> = {
  logInput: true,
  full: true,
  eps: true,
  reduction: true,
};

/**
 * The negative log likelihood of counts from a Poisson distribution.
 *
 * @example
 * ```ts
 * import { device, nn, tensor } from "holdfast";
 * const cpu = await device("cpu");
 * console.log(nn.functional.poissonNllLoss(tensor([0]), tensor([3])).item()); // → 1
 * cpu.close();
 * ```
 */
export function poissonNllLoss(input: Tensor, target: Tensor, options: PoissonNLLLossOptions = {}): Tensor {
  const {
    logInput = true,
    full = false,
    eps = 1e-8,
    reduction,
  } = checkOptions("poissonNllLoss", options, poissonNLLLossOptionNames);
  const { device } = input;
  const losses = logInput
    ? device.apply(targetLosses.poissonOfLog, [input, target])
    : device.apply(targetLosses.poissonOfRate, [input, target], { eps });
  if (!full) return reduceLoss(losses, reduction);
  const count = target.clamp(1);
  const stirling = count
    .mul(count.log())
    .sub(count)
    .add(
      count
        .mul(2 * Math.PI)
        .log()
        .mul(0.5),
    );
  return reduceLoss(losses.add(where(target.gt(1), stirling, 0)), reduction);
}

/** Options of `gaussianNllLoss`. */
export interface GaussianNLLLossOptions extends LossOptions {
  /** Add the constant log(2π) / 2. Default: false. */
  readonly full?: boolean;
  /** The smallest variance. Default: 1e-6. */
  readonly eps?: number;
}

export const gaussianNLLLossOptionNames: OptionNames<GaussianNLLLossOptions> = {
  full: true,
  eps: true,
  reduction: true,
};

/**
 * The negative log likelihood of targets from a normal distribution with this mean (the input) and variance. The variance has the input's
 * shape, or broadcasts to it.
 *
 * @example
 * ```ts
 * import { device, nn, tensor } from "holdfast";
 * const cpu = await device("cpu");
 * console.log(nn.functional.gaussianNllLoss(tensor([1]), tensor([3]), tensor([1])).item()); // → 2
 * cpu.close();
 * ```
 */
export function gaussianNllLoss(
  input: Tensor,
  target: Tensor,
  variance: Tensor,
  options: GaussianNLLLossOptions = {},
): Tensor {
  const {
    full = false,
    eps = 1e-6,
    reduction,
  } = checkOptions("gaussianNllLoss", options, gaussianNLLLossOptionNames);
  if (!(eps > 0)) {
    throw new HoldfastError("BAD_ARGUMENT", `gaussianNllLoss: eps is ${eps}; pass a number above 0.`, {
      numbers: { eps },
    });
  }
  // The limit has no gradient, as in PyTorch.
  const limited = variance.add(variance.detach().neg().add(eps).relu());
  const losses = limited.log().add(input.sub(target).square().div(limited)).mul(0.5);
  return reduceLoss(full ? losses.add(0.5 * Math.log(2 * Math.PI)) : losses, reduction);
}

/**
 * log(1 + e^(−target · input)), for targets of 1 and −1.
 *
 * @example
 * ```ts
 * import { device, nn, tensor } from "holdfast";
 * const cpu = await device("cpu");
 * console.log(nn.functional.softMarginLoss(tensor([-1000]), tensor([1])).item()); // → 1000
 * cpu.close();
 * ```
 */
export function softMarginLoss(input: Tensor, target: Tensor, options: LossOptions = {}): Tensor {
  const { reduction } = checkOptions("softMarginLoss", options, lossOptionNames);
  requireSameShapes("softMarginLoss", { input, target });
  return reduceLoss(input.device.apply(targetLosses.softMargin, [input, target]), reduction);
}

/**
 * The mean binary cross entropy over the classes of [N, C], from logits and targets of 0 and 1.
 *
 * @example
 * ```ts
 * import { device, nn, tensor } from "holdfast";
 * const cpu = await device("cpu");
 * const loss = nn.functional.multilabelSoftMarginLoss(tensor([[1000, -1000]]), tensor([[1, 1]]));
 * console.log(loss.item()); // → 500
 * cpu.close();
 * ```
 */
export function multilabelSoftMarginLoss(
  input: Tensor,
  target: Tensor,
  options: ProbabilityLossOptions = {},
): Tensor {
  const { weight, reduction } = checkOptions("multilabelSoftMarginLoss", options, probabilityLossOptionNames);
  const losses = bceWithLogits(input, target, { reduction: "none", weight: weight ?? null });
  return reduceLoss(losses.mean(-1), reduction);
}

/** Options of `sigmoidFocalLoss`. */
export interface FocalLossOptions extends LossOptions {
  /** The weight of targets of 1; those of 0 have 1 − alpha. Negative: no weights. Default: 0.25. */
  readonly alpha?: number;
  /** The exponent that makes the loss of well classified elements small. Default: 2. */
  readonly gamma?: number;
}

export const focalLossOptionNames: OptionNames<FocalLossOptions> = {
  alpha: true,
  gamma: true,
  reduction: true,
};

/**
 * The focal loss of targets of 0 and 1, from logits: the binary cross entropy times (1 − p)^gamma, where p is the probability of the target.
 *
 * @example
 * ```ts
 * import { device, nn, tensor } from "holdfast";
 * const cpu = await device("cpu");
 * const loss = nn.functional.sigmoidFocalLoss(tensor([0]), tensor([1]), { alpha: 1, gamma: 1 });
 * console.log(loss.item().toFixed(4)); // → 0.3466
 * cpu.close();
 * ```
 */
export function sigmoidFocalLoss(input: Tensor, target: Tensor, options: FocalLossOptions = {}): Tensor {
  const {
    alpha = 0.25,
    gamma = 2,
    reduction,
  } = checkOptions("sigmoidFocalLoss", options, focalLossOptionNames);
  const p = input.sigmoid();
  const missed = p.add(target).sub(p.mul(target).mul(2)); // 1 − the target's probability
  const focused = bceWithLogits(input, target, { reduction: "none" }).mul(missed.pow(gamma));
  const weighted = alpha < 0 ? focused : focused.mul(target.mul(2 * alpha - 1).add(1 - alpha));
  return reduceLoss(weighted, reduction);
}
