/** MultiheadAttention: several attention heads, each on its share of the width. */

import { checkOptions, type OptionNames } from "../../errors/index.js";
import { arange, type Tensor, where } from "../../tensor/index.js";
import { dropout, linear, packedAttention, scaledDotProductAttention } from "../functional.js";
import { xavierUniform, zeros } from "../init.js";
import { Module } from "../module.js";
import { Parameter } from "../parameter.js";
import { requireDivides, requireProbability, requireSizes } from "./checks.js";
import { Linear } from "./linear.js";

/** Options of a `MultiheadAttention` layer. */
export interface MultiheadAttentionOptions {
  readonly bias?: boolean;
  /** The dropout probability of attention weights in training. */
  readonly dropout?: number;
  /** Inputs are [batch, rows, width] (default: true), or [rows, batch, width]. PyTorch's default is false. */
  readonly batchFirst?: boolean;
}

/** Options of a call of `MultiheadAttention`. */
export interface AttendOptions {
  /**
   * Broadcast to [batch, heads, rows, columns]. A boolean mask is true where a column takes part (PyTorch's layer,
   * unlike its function, inverts this); a float mask is added to the scores.
   */
  readonly mask?: Tensor | null;
  /** Row i attends to columns 0 to i. */
  readonly isCausal?: boolean;
  /** [batch, columns], or [columns] without a batch: true where a key is padding, which takes no part. */
  readonly keyPaddingMask?: Tensor | null;
}

export const attendOptionNames: OptionNames<AttendOptions> = {
  mask: true,
  isCausal: true,
  keyPaddingMask: true,
};

/**
 * Multi-head attention. Key and value default to the query. `forwardWithWeights` returns the attention weights too.
 *
 * @example
 * ```ts
 * import { device, nn, randn } from "holdfast";
 * const cpu = await device("cpu");
 * const attention = new nn.MultiheadAttention(8, 2).to(cpu);
 * console.log(attention.forward(randn([4, 5, 8]), undefined, undefined, { isCausal: true }).shape); // → [ 4, 5, 8 ]
 * console.log([...attention.namedParameters()].map(([name]) => name).join());
 * // → inProjWeight,inProjBias,outProj.weight,outProj.bias
 * cpu.close();
 * ```
 */
export class MultiheadAttention extends Module {
  readonly embedDim: number;
  readonly heads: number;
  readonly dropout: number;
  readonly batchFirst: boolean;
  /** `[3·width, width]`: the weights of query, key and value, stacked. */
  readonly inProjWeight: Parameter;
  /** [3·width] */
  readonly inProjBias: Parameter | null;
  readonly outProj: Linear;

  constructor(embedDim: number, heads: number, options: MultiheadAttentionOptions = {}) {
    const {
      bias = true,
      dropout = 0,
      batchFirst = true,
    } = checkOptions("nn.MultiheadAttention", options, { bias: true, dropout: true, batchFirst: true });
    super();
    requireSizes("MultiheadAttention", { embedDim, heads });
    requireDivides("MultiheadAttention", embedDim, "embedDim", heads, "heads");
    requireProbability("MultiheadAttention", dropout);
    this.embedDim = embedDim;
    this.heads = heads;
    this.dropout = dropout;
    this.batchFirst = batchFirst;
    this.inProjWeight = new Parameter([3 * embedDim, embedDim], xavierUniform());
    this.inProjBias = bias ? new Parameter([3 * embedDim], zeros()) : null;
    this.outProj = new Linear(embedDim, embedDim, { bias });
    this.outProj.bias?.initialize(zeros());
  }

  /** Inputs [batch, rows, width], or [rows, width] without a batch; the output has the query's shape. */
  forward(query: Tensor, key: Tensor = query, value: Tensor = key, options: AttendOptions = {}): Tensor {
    const {
      mask: given = null,
      isCausal = false,
      keyPaddingMask = null,
    } = checkOptions("nn.MultiheadAttention.forward", options, attendOptionNames);
    const { inProjWeight, inProjBias, heads } = this;
    const mask = withPadding(given, keyPaddingMask);
    const dropoutP = this.isTraining ? this.dropout : 0;
    if (query === key && key === value && dropoutP === 0) {
      const qkv = this.#batchFirst(linear(query, inProjWeight, inProjBias)); // [B, S, 3·W]
      const packed = qkv.unflatten(-1, [3, heads, this.embedDim / heads]);
      const attended = packedAttention(packed, { mask, isCausal }).flatten(-2); // [B, S, W]
      return this.outProj.forward(this.#batchFirst(attended));
    }
    const [q, k, v] = this.#project(query, key, value).map((x) => this.#splitHeads(x)) as [
      Tensor,
      Tensor,
      Tensor,
    ];
    const attended = scaledDotProductAttention(q, k, v, mask, { isCausal, dropoutP }); // [B, H, S, W/H]
    return this.outProj.forward(this.#batchFirst(attended.transpose(-3, -2).flatten(-2)));
  }

  /**
   * As `forward`, and the attention weights [batch, rows, columns], the mean over the heads; for inspection, because it stores all weights.
   *
   * @example
   * ```ts
   * import { device, nn, randn } from "holdfast";
   * const cpu = await device("cpu");
   * const attention = new nn.MultiheadAttention(8, 2).to(cpu);
   * const { output, weights } = attention.forwardWithWeights(randn([4, 5, 8]));
   * console.log(output.shape, weights.shape); // → [ 4, 5, 8 ] [ 4, 5, 5 ]
   * cpu.close();
   * ```
   */
  forwardWithWeights(
    query: Tensor,
    key: Tensor = query,
    value: Tensor = key,
    options: AttendOptions & {
      /** False: the weights of each head, [batch, heads, rows, columns]. */
      readonly averageWeights?: boolean;
    } = {},
  ): { readonly output: Tensor; readonly weights: Tensor } {
    const {
      mask: given = null,
      isCausal = false,
      keyPaddingMask = null,
      averageWeights = true,
    } = checkOptions("nn.MultiheadAttention.forwardWithWeights", options, {
      mask: true,
      isCausal: true,
      keyPaddingMask: true,
      averageWeights: true,
    });
    const [q, k, v] = this.#project(query, key, value).map((x) => this.#splitHeads(x)) as [
      Tensor,
      Tensor,
      Tensor,
    ];
    const scores = q.matmul(k.transpose(-1, -2)).mul(1 / Math.sqrt(this.embedDim / this.heads));
    const [rows = 1, columns = 1] = scores.shape.slice(-2);
    const causal = isCausal ? causalMask(query, rows, columns) : null;
    const masked = [withPadding(given, keyPaddingMask), causal].reduce<Tensor>(
      (result, mask) => (mask ? maskScores(result, mask) : result),
      scores,
    );
    const weights = masked.softmax(-1); // [B, H, S, C]
    const dropped = dropout(weights, this.dropout, this.isTraining);
    const attended = dropped.matmul(v).transpose(-3, -2).flatten(-2);
    const output = this.outProj.forward(this.#batchFirst(attended));
    return { output, weights: averageWeights ? weights.mean(-3) : weights };
  }

  /** Projects query, key and value with their shares of the weight; in one GEMM if all are the same tensor. */
  #project(query: Tensor, key: Tensor, value: Tensor): readonly Tensor[] {
    const { inProjWeight, inProjBias, embedDim } = this;
    if (query === key && key === value) {
      const all = linear(query, inProjWeight, inProjBias); // [B, S, 3·W]
      return [0, 1, 2].map((index) => all.narrow(-1, index * embedDim, embedDim));
    }
    const share = (whole: Tensor, index: number): Tensor => whole.narrow(0, index * embedDim, embedDim);
    return [query, key, value].map((x, index) =>
      linear(x, share(inProjWeight, index), inProjBias && share(inProjBias, index)),
    );
  }

  /** [B, S, W] → [B, H, S, W/H] */
  #splitHeads(x: Tensor): Tensor {
    return this.#batchFirst(x)
      .unflatten(-1, [this.heads, this.embedDim / this.heads])
      .transpose(-3, -2);
  }

  /** Swaps [S, B, W] and [B, S, W] if the batch is not first. */
  #batchFirst(x: Tensor): Tensor {
    return this.batchFirst || x.ndim < 3 ? x : x.transpose(0, 1);
  }

  protected override describe(): string {
    return `embedDim=${this.embedDim}, heads=${this.heads}, bias=${this.inProjBias !== null}, dropout=${this.dropout}`;
  }
}

/** A mask of scores without the columns of padding keys. */
function withPadding(mask: Tensor | null, padding: Tensor | null): Tensor | null {
  if (!padding) return mask;
  const isKept = padding.logicalNot().unsqueeze(-2).unsqueeze(-2); // [B, 1, 1, C]
  if (!mask) return isKept;
  return mask.dtype === "bool" ? mask.logicalAnd(isKept) : where(isKept, mask, Number.NEGATIVE_INFINITY);
}

function maskScores(scores: Tensor, mask: Tensor): Tensor {
  return mask.dtype === "bool" ? where(mask, scores, Number.NEGATIVE_INFINITY) : scores.add(mask);
}

/** [rows, columns]: true from the first column to that of the row. */
function causalMask({ device }: Tensor, rows: number, columns: number): Tensor {
  const [row, column] = [arange(0, rows, 1, { device }), arange(0, columns, 1, { device })];
  return row.unsqueeze(1).ge(column);
}
