/** MultiheadAttention: several attention heads, each on its share of the width. */

import type { Tensor } from "../../tensor/index.js";
import { linear, packedAttention, scaledDotProductAttention } from "../functional.js";
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
}

/**
 * Multi-head attention. Key and value default to the query; the attention weights themselves are not returned.
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

  constructor(
    embedDim: number,
    heads: number,
    { bias = true, dropout = 0, batchFirst = true }: MultiheadAttentionOptions = {},
  ) {
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
  forward(
    query: Tensor,
    key: Tensor = query,
    value: Tensor = key,
    { mask = null, isCausal = false }: AttendOptions = {},
  ): Tensor {
    const { inProjWeight, inProjBias, heads } = this;
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
