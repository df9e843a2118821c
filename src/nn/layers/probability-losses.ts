/** Losses of probabilities, counts and sequences as modules. */

import { checkOptions } from "../../errors/index.js";
import type { Tensor } from "../../tensor/index.js";
import { ctcLossOptionNames } from "../functional/ctc-loss.js";
import { lossOptionNames } from "../functional/losses.js";
import {
  focalLossOptionNames,
  gaussianNLLLossOptionNames,
  klDivOptionNames,
  poissonNLLLossOptionNames,
  probabilityLossOptionNames,
} from "../functional/probability-losses.js";
import {
  binaryCrossEntropy,
  type CTCLossOptions,
  ctcLoss,
  type FocalLossOptions,
  type GaussianNLLLossOptions,
  gaussianNllLoss,
  type KLDivOptions,
  klDiv,
  type LossOptions,
  multilabelSoftMarginLoss,
  type PoissonNLLLossOptions,
  type ProbabilityLossOptions,
  poissonNllLoss,
  sigmoidFocalLoss,
  softMarginLoss,
} from "../functional.js";
import { Loss, OptionsModule } from "./loss.js";

/**
 * The binary cross entropy, from probabilities; see `nn.functional.binaryCrossEntropy`.
 *
 * @example
 * ```ts
 * import { device, nn, tensor } from "holdfast";
 * const cpu = await device("cpu");
 * console.log(new nn.BCELoss().forward(tensor([0.5]), tensor([1])).item().toFixed(4)); // → 0.6931
 * cpu.close();
 * ```
 */
export class BCELoss extends Loss<ProbabilityLossOptions> {
  constructor(options: ProbabilityLossOptions = {}) {
    checkOptions("nn.BCELoss", options, probabilityLossOptionNames);
    super(options);
  }

  /** An input and a target of one shape to the loss. */
  forward(input: Tensor, target: Tensor): Tensor {
    return binaryCrossEntropy(input, target, this.options);
  }
}

/**
 * The Kullback–Leibler divergence, from log probabilities; see `nn.functional.klDiv`.
 *
 * @example
 * ```ts
 * import { device, nn, tensor } from "holdfast";
 * const cpu = await device("cpu");
 * const criterion = new nn.KLDivLoss({ reduction: "sum" });
 * console.log(criterion.forward(tensor([0.5, 0.5]).log(), tensor([1, 0])).item().toFixed(4)); // → 0.6931
 * cpu.close();
 * ```
 */
export class KLDivLoss extends Loss<KLDivOptions> {
  constructor(options: KLDivOptions = {}) {
    checkOptions("nn.KLDivLoss", options, klDivOptionNames);
    super(options);
  }

  /** An input and a target of one shape to the loss. */
  forward(input: Tensor, target: Tensor): Tensor {
    return klDiv(input, target, this.options);
  }
}

/**
 * The negative log likelihood of counts; see `nn.functional.poissonNllLoss`.
 *
 * @example
 * ```ts
 * import { device, nn, tensor } from "holdfast";
 * const cpu = await device("cpu");
 * console.log(new nn.PoissonNLLLoss().forward(tensor([0]), tensor([3])).item()); // → 1
 * cpu.close();
 * ```
 */
export class PoissonNLLLoss extends Loss<PoissonNLLLossOptions> {
  constructor(options: PoissonNLLLossOptions = {}) {
    checkOptions("nn.PoissonNLLLoss", options, poissonNLLLossOptionNames);
    super(options);
  }

  /** An input and a target of one shape to the loss. */
  forward(input: Tensor, target: Tensor): Tensor {
    return poissonNllLoss(input, target, this.options);
  }
}

/**
 * The negative log likelihood of normal distributions; see `nn.functional.gaussianNllLoss`.
 *
 * @example
 * ```ts
 * import { device, nn, tensor } from "holdfast";
 * const cpu = await device("cpu");
 * console.log(new nn.GaussianNLLLoss().forward(tensor([1]), tensor([3]), tensor([1])).item()); // → 2
 * cpu.close();
 * ```
 */
export class GaussianNLLLoss extends OptionsModule<GaussianNLLLossOptions> {
  constructor(options: GaussianNLLLossOptions = {}) {
    checkOptions("nn.GaussianNLLLoss", options, gaussianNLLLossOptionNames);
    super(options);
  }

  /** Means, targets and variances to the loss. */
  forward(input: Tensor, target: Tensor, variance: Tensor): Tensor {
    return gaussianNllLoss(input, target, variance, this.options);
  }
}

/**
 * log(1 + e^(−target · input)); see `nn.functional.softMarginLoss`.
 *
 * @example
 * ```ts
 * import { device, nn, tensor } from "holdfast";
 * const cpu = await device("cpu");
 * console.log(new nn.SoftMarginLoss().forward(tensor([-1000]), tensor([1])).item()); // → 1000
 * cpu.close();
 * ```
 */
export class SoftMarginLoss extends Loss<LossOptions> {
  constructor(options: LossOptions = {}) {
    checkOptions("nn.SoftMarginLoss", options, lossOptionNames);
    super(options);
  }

  /** An input and a target of one shape to the loss. */
  forward(input: Tensor, target: Tensor): Tensor {
    return softMarginLoss(input, target, this.options);
  }
}

/**
 * The mean binary cross entropy over classes; see `nn.functional.multilabelSoftMarginLoss`.
 *
 * @example
 * ```ts
 * import { device, nn, tensor } from "holdfast";
 * const cpu = await device("cpu");
 * const criterion = new nn.MultiLabelSoftMarginLoss();
 * console.log(criterion.forward(tensor([[1000, -1000]]), tensor([[1, 1]])).item()); // → 500
 * cpu.close();
 * ```
 */
export class MultiLabelSoftMarginLoss extends Loss<ProbabilityLossOptions> {
  constructor(options: ProbabilityLossOptions = {}) {
    checkOptions("nn.MultiLabelSoftMarginLoss", options, probabilityLossOptionNames);
    super(options);
  }

  /** An input and a target of one shape to the loss. */
  forward(input: Tensor, target: Tensor): Tensor {
    return multilabelSoftMarginLoss(input, target, this.options);
  }
}

/**
 * The focal loss of targets of 0 and 1, from logits; see `nn.functional.sigmoidFocalLoss`.
 *
 * @example
 * ```ts
 * import { device, nn, tensor } from "holdfast";
 * const cpu = await device("cpu");
 * const criterion = new nn.FocalLoss({ alpha: 1, gamma: 1 });
 * console.log(criterion.forward(tensor([0]), tensor([1])).item().toFixed(4)); // → 0.3466
 * cpu.close();
 * ```
 */
export class FocalLoss extends Loss<FocalLossOptions> {
  constructor(options: FocalLossOptions = {}) {
    checkOptions("nn.FocalLoss", options, focalLossOptionNames);
    super(options);
  }

  /** An input and a target of one shape to the loss. */
  forward(input: Tensor, target: Tensor): Tensor {
    return sigmoidFocalLoss(input, target, this.options);
  }
}

/**
 * The loss of a sequence over all of its alignments; see `nn.functional.ctcLoss`.
 *
 * @example
 * ```ts
 * import { device, nn, tensor } from "holdfast";
 * const cpu = await device("cpu");
 * const logProbs = tensor([[[0, 0]], [[0, 0]]]).logSoftmax(-1);
 * const [targets, two, one] = [tensor([[1]], { dtype: "i32" }), tensor([2], { dtype: "i32" }), tensor([1], { dtype: "i32" })];
 * console.log(new nn.CTCLoss().forward(logProbs, targets, two, one).item().toFixed(4)); // → 0.2877
 * cpu.close();
 * ```
 */
export class CTCLoss extends OptionsModule<CTCLossOptions> {
  constructor(options: CTCLossOptions = {}) {
    checkOptions("nn.CTCLoss", options, ctcLossOptionNames);
    super(options);
  }

  /** Log probabilities [T, N, C], targets [N, S] and the lengths of both to the loss. */
  forward(
    logProbs: Tensor,
    targets: Tensor,
    inputLengths: Tensor | readonly number[],
    targetLengths: Tensor | readonly number[],
  ): Tensor {
    return ctcLoss(logProbs, targets, inputLengths, targetLengths, this.options);
  }
}
