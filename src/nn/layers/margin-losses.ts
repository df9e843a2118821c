/** Losses of distances, similarities and margins as modules. */

import { checkOptions } from "../../errors/index.js";
import type { Tensor } from "../../tensor/index.js";
import { lossOptionNames } from "../functional/losses.js";
import {
  marginOptionNames,
  multiMarginOptionNames,
  pairwiseDistanceOptionNames,
  tripletDistanceOptionNames,
  tripletMarginOptionNames,
} from "../functional/margin-losses.js";
import {
  cosineEmbeddingLoss,
  cosineSimilarity,
  hingeEmbeddingLoss,
  type LossOptions,
  type MarginOptions,
  type MultiMarginOptions,
  marginRankingLoss,
  multilabelMarginLoss,
  multiMarginLoss,
  type PairwiseDistanceOptions,
  pairwiseDistance,
  type TripletDistanceOptions,
  type TripletMarginOptions,
  tripletMarginLoss,
  tripletMarginWithDistanceLoss,
} from "../functional.js";
import { Loss, OptionsModule } from "./loss.js";

/**
 * max(0, margin − target · (x1 − x2)); see `nn.functional.marginRankingLoss`.
 *
 * @example
 * ```ts
 * import { device, nn, tensor } from "holdfast";
 * const cpu = await device("cpu");
 * console.log(new nn.MarginRankingLoss().forward(tensor([1]), tensor([4]), tensor([1])).item()); // → 3
 * cpu.close();
 * ```
 */
export class MarginRankingLoss extends OptionsModule<MarginOptions> {
  constructor(options: MarginOptions = {}) {
    checkOptions("nn.MarginRankingLoss", options, marginOptionNames);
    super(options);
  }

  /** Two inputs and targets of 1 or −1 to the loss. */
  forward(x1: Tensor, x2: Tensor, target: Tensor): Tensor {
    return marginRankingLoss(x1, x2, target, this.options);
  }
}

/**
 * The input, or max(0, margin − input); see `nn.functional.hingeEmbeddingLoss`.
 *
 * @example
 * ```ts
 * import { device, nn, tensor } from "holdfast";
 * const cpu = await device("cpu");
 * console.log(new nn.HingeEmbeddingLoss().forward(tensor([0.5]), tensor([-1])).item()); // → 0.5
 * cpu.close();
 * ```
 */
export class HingeEmbeddingLoss extends Loss<MarginOptions> {
  constructor(options: MarginOptions = {}) {
    checkOptions("nn.HingeEmbeddingLoss", options, marginOptionNames);
    super(options);
  }

  /** An input and a target of one shape to the loss. */
  forward(input: Tensor, target: Tensor): Tensor {
    return hingeEmbeddingLoss(input, target, this.options);
  }
}

/**
 * A loss of cosine similarities; see `nn.functional.cosineEmbeddingLoss`.
 *
 * @example
 * ```ts
 * import { device, nn, tensor } from "holdfast";
 * const cpu = await device("cpu");
 * const [x, y] = [tensor([[1, 0]]), tensor([[0, 1]])];
 * console.log(new nn.CosineEmbeddingLoss().forward(x, y, tensor([1])).item()); // → 1
 * cpu.close();
 * ```
 */
export class CosineEmbeddingLoss extends OptionsModule<MarginOptions> {
  constructor(options: MarginOptions = {}) {
    checkOptions("nn.CosineEmbeddingLoss", options, marginOptionNames);
    super(options);
  }

  /** Vectors [N, D] or [D] and targets of 1 or −1 to the loss. */
  forward(x1: Tensor, x2: Tensor, target: Tensor): Tensor {
    return cosineEmbeddingLoss(x1, x2, target, this.options);
  }
}

/**
 * A loss of two distances; see `nn.functional.tripletMarginLoss`.
 *
 * @example
 * ```ts
 * import { device, nn, tensor } from "holdfast";
 * const cpu = await device("cpu");
 * const criterion = new nn.TripletMarginLoss({ eps: 0 });
 * console.log(criterion.forward(tensor([[0]]), tensor([[3]]), tensor([[-2]])).item()); // → 2
 * cpu.close();
 * ```
 */
export class TripletMarginLoss extends OptionsModule<TripletMarginOptions> {
  constructor(options: TripletMarginOptions = {}) {
    checkOptions("nn.TripletMarginLoss", options, tripletMarginOptionNames);
    super(options);
  }

  /** Three batches of vectors to the loss. */
  forward(anchor: Tensor, positive: Tensor, negative: Tensor): Tensor {
    return tripletMarginLoss(anchor, positive, negative, this.options);
  }
}

/**
 * `TripletMarginLoss` with your own distance; see `nn.functional.tripletMarginWithDistanceLoss`.
 *
 * @example
 * ```ts
 * import { device, nn, tensor } from "holdfast";
 * const cpu = await device("cpu");
 * const criterion = new nn.TripletMarginWithDistanceLoss({ distanceFunction: (a, b) => a.sub(b).abs().amax(-1) });
 * console.log(criterion.forward(tensor([[0]]), tensor([[3]]), tensor([[-2]])).item()); // → 2
 * cpu.close();
 * ```
 */
export class TripletMarginWithDistanceLoss extends OptionsModule<TripletDistanceOptions> {
  constructor(options: TripletDistanceOptions = {}) {
    checkOptions("nn.TripletMarginWithDistanceLoss", options, tripletDistanceOptionNames);
    super(options);
  }

  /** Three batches of vectors to the loss. */
  forward(anchor: Tensor, positive: Tensor, negative: Tensor): Tensor {
    return tripletMarginWithDistanceLoss(anchor, positive, negative, this.options);
  }
}

/**
 * A margin between the label and the other classes; see `nn.functional.multiMarginLoss`.
 *
 * @example
 * ```ts
 * import { device, nn, tensor } from "holdfast";
 * const cpu = await device("cpu");
 * console.log(new nn.MultiMarginLoss().forward(tensor([[1, 3]]), tensor([0], { dtype: "i32" })).item()); // → 1.5
 * cpu.close();
 * ```
 */
export class MultiMarginLoss extends Loss<MultiMarginOptions> {
  constructor(options: MultiMarginOptions = {}) {
    checkOptions("nn.MultiMarginLoss", options, multiMarginOptionNames);
    super(options);
  }

  /** Scores [N, C] and labels [N] to the loss. */
  forward(input: Tensor, target: Tensor): Tensor {
    return multiMarginLoss(input, target, this.options);
  }
}

/**
 * A margin between several labels and the other classes; see `nn.functional.multilabelMarginLoss`.
 *
 * @example
 * ```ts
 * import { device, nn, tensor } from "holdfast";
 * const cpu = await device("cpu");
 * const labels = tensor([[1, -1, 0]], { dtype: "i32" });
 * console.log(new nn.MultiLabelMarginLoss().forward(tensor([[3, 1, 0]]), labels).item()); // → 1
 * cpu.close();
 * ```
 */
export class MultiLabelMarginLoss extends Loss<LossOptions> {
  constructor(options: LossOptions = {}) {
    checkOptions("nn.MultiLabelMarginLoss", options, lossOptionNames);
    super(options);
  }

  /** Scores [N, C] and labels [N, C] to the loss. */
  forward(input: Tensor, target: Tensor): Tensor {
    return multilabelMarginLoss(input, target, this.options);
  }
}

/**
 * The cosine of the angle between vectors along an axis; see `nn.functional.cosineSimilarity`.
 *
 * @example
 * ```ts
 * import { device, nn, tensor } from "holdfast";
 * const cpu = await device("cpu");
 * console.log(new nn.CosineSimilarity().forward(tensor([[3, 4]]), tensor([[6, 8]])).tolist()); // → [ 1 ]
 * cpu.close();
 * ```
 */
export class CosineSimilarity extends OptionsModule<{ readonly axis?: number; readonly eps?: number }> {
  constructor(options: { readonly axis?: number; readonly eps?: number } = {}) {
    checkOptions("nn.CosineSimilarity", options, { axis: true, eps: true });
    super(options);
  }

  /** Two tensors of one shape to the similarities, without the axis. */
  forward(x1: Tensor, x2: Tensor): Tensor {
    const { axis = 1, eps = 1e-8 } = this.options;
    return cosineSimilarity(x1, x2, axis, eps);
  }
}

/**
 * The distance between vectors along the last axis; see `nn.functional.pairwiseDistance`.
 *
 * @example
 * ```ts
 * import { device, nn, tensor } from "holdfast";
 * const cpu = await device("cpu");
 * console.log(new nn.PairwiseDistance({ eps: 0 }).forward(tensor([[3, 4]]), tensor([[0, 0]])).tolist()); // → [ 5 ]
 * cpu.close();
 * ```
 */
export class PairwiseDistance extends OptionsModule<PairwiseDistanceOptions> {
  constructor(options: PairwiseDistanceOptions = {}) {
    checkOptions("nn.PairwiseDistance", options, pairwiseDistanceOptionNames);
    super(options);
  }

  /** Two tensors of one shape to the distances, without the last axis. */
  forward(x1: Tensor, x2: Tensor): Tensor {
    return pairwiseDistance(x1, x2, this.options);
  }
}
