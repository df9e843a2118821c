/** Losses as modules: `nn.functional` with stored options. */

import { checkOptions } from "../../errors/index.js";
import type { Tensor } from "../../tensor/index.js";
import {
  binaryLossOptionNames,
  classLossOptionNames,
  crossEntropyOptionNames,
  lossOptionNames,
} from "../functional/losses.js";
import {
  type BinaryLossOptions,
  bceWithLogits,
  type ClassLossOptions,
  type CrossEntropyOptions,
  crossEntropy,
  huberLoss,
  type LossOptions,
  l1Loss,
  mseLoss,
  nllLoss,
  smoothL1Loss,
} from "../functional.js";
import { Loss } from "./loss.js";

/**
 * The negative log probability of each row's class, from logits and labels; see `nn.functional.crossEntropy`.
 *
 * @example
 * ```ts
 * import { device, nn, tensor } from "holdfast";
 * const cpu = await device("cpu");
 * const criterion = new nn.CrossEntropyLoss({ reduction: "sum" });
 * console.log(criterion.forward(tensor([[-50, -60, 100]]), tensor([0], { dtype: "i32" })).item()); // → 150
 * console.log(criterion); // → CrossEntropyLoss(reduction=sum)
 * cpu.close();
 * ```
 */
export class CrossEntropyLoss extends Loss<CrossEntropyOptions> {
  constructor(options: CrossEntropyOptions = {}) {
    checkOptions("nn.CrossEntropyLoss", options, crossEntropyOptionNames);
    super(options);
  }

  /** Logits and labels, or class probabilities, to the loss. */
  forward(input: Tensor, target: Tensor): Tensor {
    return crossEntropy(input, target, this.options);
  }
}

/**
 * The negative log probability of each row's class, from log probabilities; see `nn.functional.nllLoss`.
 *
 * @example
 * ```ts
 * import { device, nn, tensor } from "holdfast";
 * const cpu = await device("cpu");
 * const rows = tensor([[-1, -2], [-3, -4]]);
 * console.log(new nn.NLLLoss().forward(rows, tensor([0, 1], { dtype: "i32" })).item()); // → 2.5
 * cpu.close();
 * ```
 */
export class NLLLoss extends Loss<ClassLossOptions> {
  constructor(options: ClassLossOptions = {}) {
    checkOptions("nn.NLLLoss", options, classLossOptionNames);
    super(options);
  }

  /** Log probabilities and labels to the loss. */
  forward(input: Tensor, target: Tensor): Tensor {
    return nllLoss(input, target, this.options);
  }
}

/**
 * The squared difference; see `nn.functional.mseLoss`.
 *
 * @example
 * ```ts
 * import { device, nn, tensor } from "holdfast";
 * const cpu = await device("cpu");
 * console.log(new nn.MSELoss().forward(tensor([1, 2]), tensor([1, 4])).item()); // → 2
 * cpu.close();
 * ```
 */
export class MSELoss extends Loss<LossOptions> {
  constructor(options: LossOptions = {}) {
    checkOptions("nn.MSELoss", options, lossOptionNames);
    super(options);
  }

  /** Predictions and targets of one shape to the loss. */
  forward(input: Tensor, target: Tensor): Tensor {
    return mseLoss(input, target, this.options);
  }
}

/**
 * The absolute difference; see `nn.functional.l1Loss`.
 *
 * @example
 * ```ts
 * import { device, nn, tensor } from "holdfast";
 * const cpu = await device("cpu");
 * console.log(new nn.L1Loss().forward(tensor([1, 2]), tensor([1, 4])).item()); // → 1
 * cpu.close();
 * ```
 */
export class L1Loss extends Loss<LossOptions> {
  constructor(options: LossOptions = {}) {
    checkOptions("nn.L1Loss", options, lossOptionNames);
    super(options);
  }

  /** Predictions and targets of one shape to the loss. */
  forward(input: Tensor, target: Tensor): Tensor {
    return l1Loss(input, target, this.options);
  }
}

/**
 * Half the squared difference up to `delta`, and linear beyond; see `nn.functional.huberLoss`.
 *
 * @example
 * ```ts
 * import { device, nn, tensor } from "holdfast";
 * const cpu = await device("cpu");
 * console.log(new nn.HuberLoss({ reduction: "none" }).forward(tensor([1, 9]), tensor([0, 0])).tolist()); // → [ 0.5, 8.5 ]
 * cpu.close();
 * ```
 */
export class HuberLoss extends Loss<LossOptions & { readonly delta?: number }> {
  constructor(options: LossOptions & { readonly delta?: number } = {}) {
    checkOptions("nn.HuberLoss", options, { reduction: true, delta: true });
    super(options);
  }

  /** Predictions and targets of one shape to the loss. */
  forward(input: Tensor, target: Tensor): Tensor {
    return huberLoss(input, target, this.options);
  }
}

/**
 * `HuberLoss` divided by its delta, here `beta`; see `nn.functional.smoothL1Loss`.
 *
 * @example
 * ```ts
 * import { device, nn, tensor } from "holdfast";
 * const cpu = await device("cpu");
 * console.log(new nn.SmoothL1Loss({ beta: 2 }).forward(tensor([9]), tensor([0])).item()); // → 8
 * cpu.close();
 * ```
 */
export class SmoothL1Loss extends Loss<LossOptions & { readonly beta?: number }> {
  constructor(options: LossOptions & { readonly beta?: number } = {}) {
    checkOptions("nn.SmoothL1Loss", options, { reduction: true, beta: true });
    super(options);
  }

  /** Predictions and targets of one shape to the loss. */
  forward(input: Tensor, target: Tensor): Tensor {
    return smoothL1Loss(input, target, this.options);
  }
}

/**
 * The binary cross entropy, from logits; see `nn.functional.bceWithLogits`.
 *
 * @example
 * ```ts
 * import { device, nn, tensor } from "holdfast";
 * const cpu = await device("cpu");
 * const criterion = new nn.BCEWithLogitsLoss({ reduction: "none" });
 * console.log(criterion.forward(tensor([1000, -1000]), tensor([1, 1])).tolist()); // → [ 0, 1000 ]
 * cpu.close();
 * ```
 */
export class BCEWithLogitsLoss extends Loss<BinaryLossOptions> {
  constructor(options: BinaryLossOptions = {}) {
    checkOptions("nn.BCEWithLogitsLoss", options, binaryLossOptionNames);
    super(options);
  }

  /** Logits and targets from 0 to 1 to the loss. */
  forward(input: Tensor, target: Tensor): Tensor {
    return bceWithLogits(input, target, this.options);
  }
}
