/**
 * Selects the next tokens on the device. Each row of logits has settings of its own, and one random number in [0, 1), so a row's token does not
 * depend on the other rows.
 */

import { arange, type Tensor, where } from "../tensor/index.js";

/**
 * - greedy: the likeliest token
 * - draw: a token drawn by temperature, or the likeliest
 * - filter: one drawn among the likeliest, by top-k and top-p; sorts the logits
 */
export type SamplingKind = "greedy" | "draw" | "filter";

/** Settings of rows, each [rows, 1]. */
export interface RowSettings {
  readonly temperature: Tensor;
  /** 1 for the likeliest token, V for all. */
  readonly topK: Tensor;
  readonly topP: Tensor;
  /** In [0, 1). */
  readonly draw: Tensor;
}

/** Logits f32 [rows, V] to tokens i32 [rows]. */
export function selectTokens(logits: Tensor, kind: SamplingKind, settings: RowSettings): Tensor {
  if (kind === "greedy") return logits.argmax(-1);
  return kind === "draw" ? drawn(logits, settings) : filtered(logits, settings);
}

/** Logits of tokens that occurred, with their penalty: [rows, V] and [rows, 1]. */
export function penalized(logits: Tensor, occurred: Tensor, penalty: Tensor): Tensor {
  return where(occurred, where(logits.lt(0), logits.mul(penalty), logits.div(penalty)), logits);
}

function drawn(logits: Tensor, { temperature, topK, draw }: RowSettings): Tensor {
  const sums = prefixSums(weightsOf(logits.div(temperature)));
  const token = placeOf(draw, sums);
  return where(topK.le(1).squeeze(1), logits.argmax(-1), token.squeeze(1));
}

function filtered(logits: Tensor, { temperature, topK, topP, draw }: RowSettings): Tensor {
  const { values, indices } = logits.div(temperature).sort(-1, { descending: true });
  const rank = arange(0, logits.shape[1] ?? 1, 1, { device: logits.device });
  const weights = where(rank.lt(topK), weightsOf(values), 0);
  const sums = prefixSums(weights);
  // A token counts if those before it have less than the share. The first one always does.
  const isKept = sums.sub(weights).lt(lastOf(sums).mul(topP)).logicalOr(rank.eq(0));
  const place = placeOf(draw, prefixSums(where(isKept, weights, 0)));
  return indices.gather(1, place).squeeze(1);
}

/** Probabilities up to a factor; 1 for the likeliest token. */
function weightsOf(logits: Tensor): Tensor {
  return logits.sub(logits.amax(-1, { keepdim: true })).exp();
}

/** The first column whose prefix sum is above a share of the last one, [rows, 1]. */
function placeOf(share: Tensor, sums: Tensor): Tensor {
  const columns = sums.shape[1] ?? 1;
  const isBefore = sums.le(share.mul(lastOf(sums)));
  return isBefore
    .to("i32")
    .sum(-1, { keepdim: true })
    .clamp(0, columns - 1)
    .to("i32");
}

function lastOf(sums: Tensor): Tensor {
  return sums.narrow(1, (sums.shape[1] ?? 1) - 1, 1);
}

/**
 * Prefix sums along the rows of [rows, V]. A scan adds one element after the other, so it runs on √V blocks of a row at once, and then on the
 * sums of blocks. Sums never decrease.
 */
export function prefixSums(x: Tensor): Tensor {
  const [rows = 1, columns = 1] = x.shape;
  const width = Math.ceil(Math.sqrt(columns));
  const blocks = Math.ceil(columns / width);
  const inner = x
    .pad([0, blocks * width - columns])
    .reshape([rows, blocks, width])
    .cumsum(2);
  const totals = inner.narrow(2, width - 1, 1).cumsum(1); // [rows, blocks, 1]
  const before = totals.narrow(1, 0, blocks - 1).pad([0, 0, 1, 0]);
  return inner
    .add(before)
    .reshape([rows, blocks * width])
    .narrow(1, 0, columns);
}
