/** Losses of distances, similarities and margins. */

import { checkOptions, HoldfastError, type OptionNames } from "../../errors/index.js";
import { targetLosses } from "../../ops/index.js";
import { oneHot, type Tensor, where } from "../../tensor/index.js";
import type { LossOptions } from "./losses.js";
import { lossOptionNames } from "./losses.js";
import { reduceLoss, requireSameShapes } from "./reduce-loss.js";

/**
 * The cosine of the angle between vectors along an axis; lengths below eps count as eps.
 *
 * @example
 * ```ts
 * import { device, nn, tensor } from "holdfast";
 * const cpu = await device("cpu");
 * console.log(nn.functional.cosineSimilarity(tensor([[3, 4]]), tensor([[6, 8]])).tolist()); // → [ 1 ]
 * cpu.close();
 * ```
 */
export function cosineSimilarity(x1: Tensor, x2: Tensor, axis = 1, eps = 1e-8): Tensor {
  const [length1, length2] = [x1, x2].map((x) => x.square().sum(axis)) as [Tensor, Tensor];
  return x1
    .mul(x2)
    .sum(axis)
    .div(
      length1
        .mul(length2)
        .clamp(eps * eps)
        .sqrt(),
    );
}

/** Options of `pairwiseDistance`. */
export interface PairwiseDistanceOptions {
  /** The norm. Default: 2. */
  readonly p?: number;
  /** Added to the differences. Default: 1e-6. */
  readonly eps?: number;
  /** The reduced axis stays, with size 1. Default: false. */
  readonly keepdim?: boolean;
}

export const pairwiseDistanceOptionNames: OptionNames<PairwiseDistanceOptions> = {
  p: true,
  eps: true,
  keepdim: true,
};

/**
 * The distance between vectors along the last axis.
 *
 * @example
 * ```ts
 * import { device, nn, tensor } from "holdfast";
 * const cpu = await device("cpu");
 * console.log(nn.functional.pairwiseDistance(tensor([[3, 4]]), tensor([[0, 0]]), { eps: 0 }).tolist()); // → [ 5 ]
 * cpu.close();
 * ```
 */
export function pairwiseDistance(x1: Tensor, x2: Tensor, options: PairwiseDistanceOptions = {}): Tensor {
  const {
    p = 2,
    eps = 1e-6,
    keepdim = false,
  } = checkOptions("pairwiseDistance", options, pairwiseDistanceOptionNames);
  return x1.sub(x2).add(eps).norm(-1, { p, keepdim });
}

/** Options of losses with a margin. */
export interface MarginOptions extends LossOptions {
  readonly margin?: number;
}

export const marginOptionNames: OptionNames<MarginOptions> = { margin: true, reduction: true };

/**
 * max(0, margin − target · (x1 − x2)): with a target of 1, x1 should be larger. Default margin: 0.
 *
 * @example
 * ```ts
 * import { device, nn, tensor } from "holdfast";
 * const cpu = await device("cpu");
 * console.log(nn.functional.marginRankingLoss(tensor([1]), tensor([4]), tensor([1])).item()); // → 3
 * cpu.close();
 * ```
 */
export function marginRankingLoss(
  x1: Tensor,
  x2: Tensor,
  target: Tensor,
  options: MarginOptions = {},
): Tensor {
  const { margin = 0, reduction } = checkOptions("marginRankingLoss", options, marginOptionNames);
  return reduceLoss(target.neg().mul(x1.sub(x2)).add(margin).clamp(0), reduction);
}

/**
 * The input where the target is 1, and max(0, margin − input) where it is −1. Default margin: 1.
 *
 * @example
 * ```ts
 * import { device, nn, tensor } from "holdfast";
 * const cpu = await device("cpu");
 * const loss = nn.functional.hingeEmbeddingLoss(tensor([3, 0.5]), tensor([1, -1]), { reduction: "none" });
 * console.log(loss.tolist()); // → [ 3, 0.5 ]
 * cpu.close();
 * ```
 */
export function hingeEmbeddingLoss(input: Tensor, target: Tensor, options: MarginOptions = {}): Tensor {
  const { margin = 1, reduction } = checkOptions("hingeEmbeddingLoss", options, marginOptionNames);
  return reduceLoss(
    input.device.apply(targetLosses.hingeEmbedding, [input, target.detach()], { margin }),
    reduction,
  );
}

/**
 * 1 − the cosine similarity where the target is 1, and max(0, the similarity − margin) where it is −1. Default margin: 0.
 *
 * @example
 * ```ts
 * import { device, nn, tensor } from "holdfast";
 * const cpu = await device("cpu");
 * const [x, y] = [tensor([[1, 0]]), tensor([[0, 1]])];
 * console.log(nn.functional.cosineEmbeddingLoss(x, y, tensor([1])).item()); // → 1
 * cpu.close();
 * ```
 */
export function cosineEmbeddingLoss(
  x1: Tensor,
  x2: Tensor,
  target: Tensor,
  options: MarginOptions = {},
): Tensor {
  const { margin = 0, reduction } = checkOptions("cosineEmbeddingLoss", options, marginOptionNames);
  requireSameShapes("cosineEmbeddingLoss", { x1, x2 });
  // PyTorch's similarity here adds eps to both squared lengths.
  const [length1, length2] = [x1, x2].map((x) => x.square().sum(-1).add(1e-12)) as [Tensor, Tensor];
  const similarity = x1.mul(x2).sum(-1).div(length1.mul(length2).sqrt());
  const near = where(target.eq(1), similarity.neg().add(1), 0);
  const far = where(target.eq(-1), similarity.sub(margin).clamp(0), 0);
  return reduceLoss(near.add(far), reduction);
}

/** Options of `tripletMarginLoss`. */
export interface TripletMarginOptions extends MarginOptions {
  /** The norm. Default: 2. */
  readonly p?: number;
  /** Added to the differences. Default: 1e-6. */
  readonly eps?: number;
  /** Use the distance from the negative to the positive if it is smaller than that to the anchor. Default: false. */
  readonly swap?: boolean;
}

export const tripletMarginOptionNames: OptionNames<TripletMarginOptions> = {
  p: true,
  eps: true,
  swap: true,
  margin: true,
  reduction: true,
};

/**
 * max(0, the distance to the positive − the distance to the negative + margin). Default margin: 1.
 *
 * @example
 * ```ts
 * import { device, nn, tensor } from "holdfast";
 * const cpu = await device("cpu");
 * const [anchor, positive, negative] = [tensor([[0]]), tensor([[3]]), tensor([[-2]])];
 * console.log(nn.functional.tripletMarginLoss(anchor, positive, negative, { eps: 0 }).item()); // → 2
 * cpu.close();
 * ```
 */
export function tripletMarginLoss(
  anchor: Tensor,
  positive: Tensor,
  negative: Tensor,
  given: TripletMarginOptions = {},
): Tensor {
  const {
    p = 2,
    eps = 1e-6,
    ...options
  } = checkOptions("tripletMarginLoss", given, tripletMarginOptionNames);
  const distanceFunction = (a: Tensor, b: Tensor): Tensor => pairwiseDistance(a, b, { p, eps });
  return tripletMarginWithDistanceLoss(anchor, positive, negative, { ...options, distanceFunction });
}

/** Options of `tripletMarginWithDistanceLoss`. */
export interface TripletDistanceOptions extends MarginOptions {
  /** Default: `pairwiseDistance`. */
  readonly distanceFunction?: (a: Tensor, b: Tensor) => Tensor;
  /** Use the distance from the negative to the positive if it is smaller than that to the anchor. Default: false. */
  readonly swap?: boolean;
}

export const tripletDistanceOptionNames: OptionNames<TripletDistanceOptions> = {
  distanceFunction: true,
  swap: true,
  margin: true,
  reduction: true,
};

/**
 * `tripletMarginLoss` with your own distance.
 *
 * @example
 * ```ts
 * import { device, nn, tensor, type Tensor } from "holdfast";
 * const cpu = await device("cpu");
 * const distanceFunction = (a: Tensor, b: Tensor) => a.sub(b).abs().amax(-1);
 * const [anchor, positive, negative] = [tensor([[0, 0]]), tensor([[1, 3]]), tensor([[2, 0]])];
 * const loss = nn.functional.tripletMarginWithDistanceLoss(anchor, positive, negative, { distanceFunction });
 * console.log(loss.item()); // → 2
 * cpu.close();
 * ```
 */
export function tripletMarginWithDistanceLoss(
  anchor: Tensor,
  positive: Tensor,
  negative: Tensor,
  options: TripletDistanceOptions = {},
): Tensor {
  const {
    distanceFunction = pairwiseDistance,
    margin = 1,
    swap = false,
    reduction,
  } = checkOptions("tripletMarginWithDistanceLoss", options, tripletDistanceOptionNames);
  const near = distanceFunction(anchor, positive);
  const fromAnchor = distanceFunction(anchor, negative);
  const far = swap ? fromAnchor.minimum(distanceFunction(positive, negative)) : fromAnchor;
  return reduceLoss(near.sub(far).add(margin).clamp(0), reduction);
}

/** Options of `multiMarginLoss`. */
export interface MultiMarginOptions extends MarginOptions {
  /** The exponent: 1 or 2. Default: 1. */
  readonly p?: 1 | 2;
  /** The weight of each class, [C]. */
  readonly weight?: Tensor | null;
}

export const multiMarginOptionNames: OptionNames<MultiMarginOptions> = {
  p: true,
  weight: true,
  margin: true,
  reduction: true,
};

/**
 * The mean over the other classes of max(0, margin − score of the label + score of the class)^p, for scores [N, C] and labels [N], or [C]
 * and a label. Default margin: 1.
 *
 * @example
 * ```ts
 * import { device, nn, tensor } from "holdfast";
 * const cpu = await device("cpu");
 * const loss = nn.functional.multiMarginLoss(tensor([[1, 3]]), tensor([0], { dtype: "i32" }));
 * console.log(loss.item()); // → 1.5
 * cpu.close();
 * ```
 */
export function multiMarginLoss(input: Tensor, target: Tensor, options: MultiMarginOptions = {}): Tensor {
  const {
    p = 1,
    margin = 1,
    weight,
    reduction,
  } = checkOptions("multiMarginLoss", options, multiMarginOptionNames);
  if (p !== 1 && p !== 2)
    throw new HoldfastError("BAD_ARGUMENT", `multiMarginLoss: p is ${String(p)}; pass 1 or 2.`);
  const classes = input.shape.at(-1) ?? 1;
  const own = input.gather(-1, target.unsqueeze(-1));
  const others = where(oneHot(target, classes).eq(1), 0, input.sub(own).add(margin).relu());
  const powers = p === 2 ? others.square() : others;
  const weighted = weight
    ? powers.mul(weight.indexSelect(0, target.flatten()).reshape([...target.shape, 1]))
    : powers;
  return reduceLoss(weighted.sum(-1).div(classes), reduction);
}

/**
 * The sum over labels and other classes of max(0, 1 − score of the label + score of the class), divided by the number of classes; for scores
 * [N, C] or [C]. The target, i32 of the same shape, has the labels of each row, and −1 after them.
 *
 * @example
 * ```ts
 * import { device, nn, tensor } from "holdfast";
 * const cpu = await device("cpu");
 * const labels = tensor([[1, -1, 0]], { dtype: "i32" });
 * console.log(nn.functional.multilabelMarginLoss(tensor([[3, 1, 0]]), labels).item()); // → 1
 * cpu.close();
 * ```
 */
export function multilabelMarginLoss(input: Tensor, target: Tensor, options: LossOptions = {}): Tensor {
  const { reduction } = checkOptions("multilabelMarginLoss", options, lossOptionNames);
  requireSameShapes("multilabelMarginLoss", { input, target });
  const classes = input.shape.at(-1) ?? 1;
  const isLabel = target.lt(0).to("i32").cumsum(-1).eq(0); // [N, C]: before the first −1
  const labels = where(isLabel, target, 0);
  const rows = oneHot(labels, classes).mul(isLabel.unsqueeze(-1)); // [N, C, C]
  const isOther = rows.sum(-2).eq(0); // [N, C]
  const own = input.gather(-1, labels).unsqueeze(-1); // [N, C, 1]
  const losses = input.unsqueeze(-2).sub(own).add(1).relu(); // [N, C, C]
  const counted = isLabel.unsqueeze(-1).logicalAnd(isOther.unsqueeze(-2));
  return reduceLoss(where(counted, losses, 0).sum([-2, -1]).div(classes), reduction);
}
