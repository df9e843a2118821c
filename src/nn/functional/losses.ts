/** Losses as functions of predictions and targets; a scalar, or per element with reduction "none". */

import { checkOptions, type OptionNames } from "../../errors/index.js";
import type { Dtype } from "../../ir/index.js";
import {
  crossEntropyOfProbabilities,
  crossEntropy as crossEntropyOp,
  isFloat,
  type LossReduction,
  losses,
  nllLoss as nllLossOp,
} from "../../ops/index.js";
import type { Tensor } from "../../tensor/index.js";

/** Options that all losses have. */
export type LossOptions = {
  /** Mean (default), sum, or none. */
  readonly reduction?: LossReduction;
};

export const lossOptionNames: OptionNames<LossOptions> = { reduction: true };

/** Options of losses with class labels. */
export interface ClassLossOptions extends LossOptions {
  /** The weight of each class, [C]. */
  readonly weight?: Tensor | null;
  /** Rows with this label are ignored. Default: -100. */
  readonly ignoreIndex?: number;
}

export const classLossOptionNames: OptionNames<ClassLossOptions> = {
  weight: true,
  ignoreIndex: true,
  reduction: true,
};

/** Options of `crossEntropy`. */
export interface CrossEntropyOptions extends ClassLossOptions {
  /** The share of the target that is distributed evenly over all classes. Default: 0. */
  readonly labelSmoothing?: number;
  /** The dtype of the loss. Default: that of the logits. With 16-bit logits, "f32" keeps the digits of the loss. */
  readonly dtype?: Dtype;
}

export const crossEntropyOptionNames: OptionNames<CrossEntropyOptions> = {
  labelSmoothing: true,
  dtype: true,
  weight: true,
  ignoreIndex: true,
  reduction: true,
};

/**
 * The negative log probability of each row's class, from logits [N, C], [N, C, …] or [C]. The target has labels (i32),
 * or probabilities in the logits' shape. A mean is over the rows that count, by their weights.
 *
 * @example
 * ```ts
 * import { device, nn, tensor } from "holdfast";
 * const cpu = await device("cpu");
 * const logits = tensor([[-50, -60, 100]]);
 * console.log(nn.functional.crossEntropy(logits, tensor([0], { dtype: "i32" })).item()); // → 150
 * cpu.close();
 * ```
 */
export function crossEntropy(input: Tensor, target: Tensor, options: CrossEntropyOptions = {}): Tensor {
  checkOptions("crossEntropy", options, crossEntropyOptionNames);
  const { weight, ignoreIndex, dtype, ...attributes } = options;
  if (isFloat(target.dtype)) {
    const logits = dtype === undefined ? input : input.to(dtype);
    const operands = weight ? [logits, target, weight] : [logits, target];
    return input.device.apply(crossEntropyOfProbabilities, operands, attributes);
  }
  // The kernel of f64 logits stores f64, and that of others stores f32 or less.
  const logits = dtype === "f64" ? input.to("f64") : input;
  const isNarrowed = logits.dtype === "f64" && dtype !== undefined && dtype !== "f64";
  const loss = input.device.apply(crossEntropyOp, weight ? [logits, target, weight] : [logits, target], {
    ...attributes,
    ...(ignoreIndex === undefined ? {} : { ignoreIndex }),
    ...(dtype === undefined || isNarrowed ? {} : { dtype }),
  });
  return isNarrowed ? loss.to(dtype) : loss;
}

/**
 * The negative log probability of each row's class, from log probabilities. Prefer `crossEntropy`, which takes logits.
 *
 * @example
 * ```ts
 * import { device, nn, tensor } from "holdfast";
 * const cpu = await device("cpu");
 * const rows = tensor([[-1, -2], [-3, -4]]);
 * console.log(nn.functional.nllLoss(rows, tensor([0, 1], { dtype: "i32" })).item()); // → 2.5
 * cpu.close();
 * ```
 */
export function nllLoss(input: Tensor, target: Tensor, options: ClassLossOptions = {}): Tensor {
  checkOptions("nllLoss", options, classLossOptionNames);
  const { weight, ...attributes } = options;
  return input.device.apply(nllLossOp, weight ? [input, target, weight] : [input, target], attributes);
}

/**
 * The squared difference of tensors with the same shape.
 *
 * @example
 * ```ts
 * import { device, nn, tensor } from "holdfast";
 * const cpu = await device("cpu");
 * console.log(nn.functional.mseLoss(tensor([1, 2]), tensor([1, 4])).item()); // → 2
 * cpu.close();
 * ```
 */
export function mseLoss(input: Tensor, target: Tensor, options: LossOptions = {}): Tensor {
  checkOptions("mseLoss", options, lossOptionNames);
  return input.device.apply(losses.mseLoss, [input, target], options);
}

/**
 * The absolute difference of tensors with the same shape.
 *
 * @example
 * ```ts
 * import { device, nn, tensor } from "holdfast";
 * const cpu = await device("cpu");
 * console.log(nn.functional.l1Loss(tensor([1, 2]), tensor([1, 5]), { reduction: "sum" }).item()); // → 3
 * cpu.close();
 * ```
 */
export function l1Loss(input: Tensor, target: Tensor, options: LossOptions = {}): Tensor {
  checkOptions("l1Loss", options, lossOptionNames);
  return input.device.apply(losses.l1Loss, [input, target], options);
}

/**
 * Half the squared difference up to `delta` (default: 1), and linear with slope delta beyond.
 *
 * @example
 * ```ts
 * import { device, nn, tensor, zeros } from "holdfast";
 * const cpu = await device("cpu");
 * const off = tensor([0.5, 10]);
 * console.log(nn.functional.huberLoss(off, zeros([2]), { delta: 2, reduction: "none" }).tolist()); // → [ 0.125, 18 ]
 * cpu.close();
 * ```
 */
export function huberLoss(
  input: Tensor,
  target: Tensor,
  options: LossOptions & { readonly delta?: number } = {},
): Tensor {
  checkOptions("huberLoss", options, { reduction: true, delta: true });
  return input.device.apply(losses.huberLoss, [input, target], options);
}

/**
 * `huberLoss` divided by its delta, here `beta` (default: 1): linear with slope 1 beyond.
 *
 * @example
 * ```ts
 * import { device, nn, tensor, zeros } from "holdfast";
 * const cpu = await device("cpu");
 * const off = tensor([0.5, 10]);
 * console.log(nn.functional.smoothL1Loss(off, zeros([2]), { reduction: "none" }).tolist()); // → [ 0.125, 9.5 ]
 * cpu.close();
 * ```
 */
export function smoothL1Loss(
  input: Tensor,
  target: Tensor,
  options: LossOptions & { readonly beta?: number } = {},
): Tensor {
  checkOptions("smoothL1Loss", options, { reduction: true, beta: true });
  return input.device.apply(losses.smoothL1Loss, [input, target], options);
}

/** Options of `binaryCrossEntropyWithLogits`. */
export interface BinaryLossOptions extends LossOptions {
  /** The weight of each element; it broadcasts. */
  readonly weight?: Tensor | null;
  /** The weight of positive targets; it broadcasts. */
  readonly posWeight?: Tensor | null;
}

export const binaryLossOptionNames: OptionNames<BinaryLossOptions> = {
  weight: true,
  posWeight: true,
  reduction: true,
};

/**
 * The binary cross entropy of targets from 0 to 1, from logits; finite for any logits.
 *
 * @example
 * ```ts
 * import { device, nn, tensor } from "holdfast";
 * const cpu = await device("cpu");
 * const loss = nn.functional.bceWithLogits(tensor([1000, -1000]), tensor([1, 1]), { reduction: "none" });
 * console.log(loss.tolist()); // → [ 0, 1000 ]
 * cpu.close();
 * ```
 */
export function bceWithLogits(input: Tensor, target: Tensor, options: BinaryLossOptions = {}): Tensor {
  checkOptions("bceWithLogits", options, binaryLossOptionNames);
  const { weight, posWeight, ...attributes } = options;
  return input.device.apply(losses.bceWithLogits, [input, target, weight ?? 1, posWeight ?? 1], attributes);
}

/**
 * PyTorch's name of `bceWithLogits`.
 *
 * @example
 * ```ts
 * import { device, nn, tensor } from "holdfast";
 * const cpu = await device("cpu");
 * console.log(nn.functional.binaryCrossEntropyWithLogits(tensor([0]), tensor([1])).item().toFixed(4)); // → 0.6931
 * cpu.close();
 * ```
 */
export const binaryCrossEntropyWithLogits = bceWithLogits;
