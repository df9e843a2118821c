/** Embeddings of bags of indices: one row for each bag. */

import { checkOptions, HoldfastError, type OptionNames } from "../../errors/index.js";
import { formatShape } from "../../ops/index.js";
import { arange, type Tensor, zeros } from "../../tensor/index.js";
import { embedding } from "./layers.js";

/** Options of `embeddingBag`. */
export interface EmbeddingBagOptions {
  /** The first index of each bag, i32 [bags], for indices [n]. */
  readonly offsets?: Tensor | null;
  /** Default: mean. */
  readonly mode?: "sum" | "mean" | "max";
  /** The weight of each index, in the shape of the indices; for mode "sum". */
  readonly perSampleWeights?: Tensor | null;
  /** Rows of the indices with a larger norm are scaled to it, in place. Default: no limit. */
  readonly maxNorm?: number;
  /** The p of that norm. Default: 2. */
  readonly normType?: number;
}

const embeddingBagOptionNames: OptionNames<EmbeddingBagOptions> = {
  ...{ offsets: true, mode: true, perSampleWeights: true },
  ...{ maxNorm: true, normType: true },
};

/**
 * The sum, mean or maximum of the weight's rows for each bag of indices: [bags, n] with bags of one size, or [n] with offsets.
 *
 * @example
 * ```ts
 * import { device, nn, tensor } from "holdfast";
 * const cpu = await device("cpu");
 * const weight = tensor([[1], [10], [100]]);
 * const words = tensor([[0, 1], [2, 2]], { dtype: "i32" });
 * console.log(nn.functional.embeddingBag(words, weight, { mode: "sum" }).tolist()); // → [ [ 11 ], [ 200 ] ]
 * const offsets = tensor([0, 3], { dtype: "i32" });
 * console.log(nn.functional.embeddingBag(words.flatten(), weight, { mode: "sum", offsets }).tolist()); // → [ [ 111 ], [ 100 ] ]
 * cpu.close();
 * ```
 */
export function embeddingBag(input: Tensor, weight: Tensor, options: EmbeddingBagOptions = {}): Tensor {
  const {
    offsets = null,
    mode = "mean",
    perSampleWeights = null,
    maxNorm,
    normType = 2,
  } = checkOptions("embeddingBag", options, embeddingBagOptionNames);
  if (perSampleWeights && mode !== "sum")
    throw new HoldfastError(
      "BAD_ARGUMENT",
      `embeddingBag: perSampleWeights are for mode "sum", not "${mode}".`,
    );
  const fits = offsets ? input.ndim === 1 && offsets.ndim === 1 : input.ndim === 2;
  if (!fits) {
    throw new HoldfastError(
      "BAD_SHAPE",
      `embeddingBag: indices ${formatShape(input.shape)} ${offsets ? "with" : "without"} offsets. Pass [bags, n] without offsets, or [n] with ` +
        "offsets [bags].",
    );
  }
  const rows = embedding(input, weight, maxNorm === undefined ? {} : { maxNorm, normType });
  const weighted = perSampleWeights ? rows.mul(perSampleWeights.unsqueeze(-1)) : rows;
  if (!offsets) {
    if (mode === "max") return weighted.amax(1);
    return mode === "sum" ? weighted.sum(1) : weighted.mean(1);
  }
  if (mode === "max") {
    throw new HoldfastError(
      "UNSUPPORTED",
      'embeddingBag: mode "max" needs bags of one size. Pass indices [bags, n] without offsets.',
    );
  }
  const { device, dtype } = weight;
  const bags = offsets.shape[0] ?? 0;
  const positions = arange(0, input.shape[0] ?? 0, 1, { device }).unsqueeze(1);
  const bag = positions.ge(offsets).sum(1).sub(1); // [n]
  const sums = zeros([bags, weight.shape[1] ?? 0], { device, dtype }).scatterAdd(
    0,
    bag.unsqueeze(1).expand(weighted.shape),
    weighted,
  );
  if (mode === "sum") return sums;
  const counts = zeros([bags], { device }).scatterAdd(0, bag, bag.mul(0).add(1).to("f32"));
  return sums.div(counts.clamp(1).unsqueeze(1).to(dtype));
}
