/** Losses as functions: of predictions and targets, to one number unless the reduction is "none". */

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
  /** The mean of the single losses unless given, their sum, or each for itself. */
  readonly reduction?: LossReduction;
};

/** Options of losses with class labels. */
export interface ClassLossOptions extends LossOptions {
  /** How much each class counts, [C]. */
  readonly weight?: Tensor | null;
  /** Rows of this label don't count; -100 unless given. */
  readonly ignoreIndex?: number;
}

/** Options of `crossEntropy`. */
export interface CrossEntropyOptions extends ClassLossOptions {
  /** How much of the target is spread evenly over all classes; 0 unless given. */
  readonly labelSmoothing?: number;
}

/**
 * The negative log probability of each row's class, from logits [N, C], [N, C, …] or [C]. The target has labels (i32),
 * or a share for each class in the logits' shape. A mean is over the rows that count, by their weights.
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
  const { weight, ignoreIndex, ...attributes } = options;
  const operands = weight ? [input, target, weight] : [input, target];
  if (isFloat(target.dtype)) return input.device.apply(crossEntropyOfProbabilities, operands, attributes);
  const labels = ignoreIndex === undefined ? attributes : { ...attributes, ignoreIndex };
  return input.device.apply(crossEntropyOp, operands, labels);
}

/**
 * The negative log probability of each row's class, from log probabilities. `crossEntropy` takes logits and is better off.
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
  const { weight, ...attributes } = options;
  return input.device.apply(nllLossOp, weight ? [input, target, weight] : [input, target], attributes);
}

/**
 * The squared difference. Both have one shape.
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
  return input.device.apply(losses.mseLoss, [input, target], options);
}

/**
 * The absolute difference. Both have one shape.
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
  return input.device.apply(losses.l1Loss, [input, target], options);
}

/**
 * Half the squared difference up to `delta` (1 unless given), and a straight line of slope delta behind.
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
  return input.device.apply(losses.huberLoss, [input, target], options);
}

/**
 * `huberLoss` over its delta, here `beta` (1 unless given): its straight line has slope 1.
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
  return input.device.apply(losses.smoothL1Loss, [input, target], options);
}

/** Options of `binaryCrossEntropyWithLogits`. */
export interface BinaryLossOptions extends LossOptions {
  /** How much each element counts; it broadcasts. */
  readonly weight?: Tensor | null;
  /** How much what is positive counts; it broadcasts. */
  readonly posWeight?: Tensor | null;
}

/**
 * The cross entropy of yes-or-no targets, 0 to 1, from logits; finite however large they are.
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
