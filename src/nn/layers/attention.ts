/** MultiheadAttention: several attention heads, each on its share of the width. */

import type { Tensor } from "../../tensor/index.js";
import { linear, scaledDotProductAttention } from "../functional.js";
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
    const project = this.#projection(query, key, value);
    const q = this.#splitHeads(project(query, 0));
    const k = this.#splitHeads(project(key, 1));
    const v = this.#splitHeads(project(value, 2));
    const dropoutP = this.isTraining ? this.dropout : 0;
    const attended = scaledDotProductAttention(q, k, v, mask, { isCausal, dropoutP }); // [B, H, S, W/H]
    const joined = attended.transpose(-3, -2).flatten(-2); // [B, S, W]
    return this.outProj.forward(this.#turn(joined));
  }

  /** Projects query, key and value with their shares of the weight; in one GEMM if all are the same tensor. */
  #projection(query: Tensor, key: Tensor, value: Tensor): (x: Tensor, part: 0 | 1 | 2) => Tensor {
    const { inProjWeight, inProjBias, embedDim } = this;
    if (query === key && key === value) {
      const all = linear(query, inProjWeight, inProjBias); // [B, S, 3·W]
      return (_, part) => all.narrow(-1, part * embedDim, embedDim);
    }
    const partOf = (whole: Tensor, part: number): Tensor => whole.narrow(0, part * embedDim, embedDim);
    return (x, part) => linear(x, partOf(inProjWeight, part), inProjBias && partOf(inProjBias, part));
  }

  /** [B, S, W] → [B, H, S, W/H] */
  #splitHeads(x: Tensor): Tensor {
    return this.#turn(x)
      .unflatten(-1, [this.heads, this.embedDim / this.heads])
      .transpose(-3, -2);
  }

  /** Swaps [S, B, W] and [B, S, W] if the batch is not first. */
  #turn(x: Tensor): Tensor {
    return this.batchFirst || x.ndim < 3 ? x : x.transpose(0, 1);
  }

  protected override describe(): string {
    return `embedDim=${this.embedDim}, heads=${this.heads}, bias=${this.inProjBias !== null}, dropout=${this.dropout}`;
  }
}
