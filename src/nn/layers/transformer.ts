/** TransformerEncoderLayer: attention and a feed-forward network, each with a residual and a norm. */

import { checkOptions, type OptionNames } from "../../errors/index.js";
import type { Tensor } from "../../tensor/index.js";
import { gelu, relu } from "../functional.js";
import { Module } from "../module.js";
import { type AttendOptions, attendOptionNames, MultiheadAttention } from "./attention.js";
import { Dropout } from "./dropout.js";
import { Linear } from "./linear.js";
import { LayerNorm } from "./normalisation.js";

/** Options of a `TransformerEncoderLayer`. */
export interface TransformerEncoderLayerOptions {
  /** The width between the two linear layers. Default: 2048. */
  readonly dimFeedforward?: number;
  /** Default: 0.1. */
  readonly dropout?: number;
  readonly activation?: "relu" | "gelu";
  /** Apply the norms before attention and feed-forward, not after the residuals. */
  readonly normFirst?: boolean;
  readonly layerNormEps?: number;
  readonly bias?: boolean;
  /** Inputs are [batch, rows, width]. Default: true; PyTorch's default is false. */
  readonly batchFirst?: boolean;
}

export const transformerEncoderLayerOptionNames: OptionNames<TransformerEncoderLayerOptions> = {
  dimFeedforward: true,
  dropout: true,
  activation: true,
  normFirst: true,
  layerNormEps: true,
  bias: true,
  batchFirst: true,
};

/**
 * One encoder layer of a transformer.
 *
 * @example
 * ```ts
 * import { device, nn, randn } from "holdfast";
 * const cpu = await device("cpu");
 * const layer = new nn.TransformerEncoderLayer(8, 2, { dimFeedforward: 16, activation: "gelu" }).to(cpu);
 * console.log(layer.forward(randn([4, 5, 8])).shape, layer.parameterCount); // → [ 4, 5, 8 ] 600
 * cpu.close();
 * ```
 */
export class TransformerEncoderLayer extends Module {
  readonly selfAttn: MultiheadAttention;
  readonly linear1: Linear;
  readonly dropout: Dropout;
  readonly linear2: Linear;
  readonly norm1: LayerNorm;
  readonly norm2: LayerNorm;
  readonly dropout1: Dropout;
  readonly dropout2: Dropout;
  readonly normFirst: boolean;
  readonly #activate: (x: Tensor) => Tensor;

  constructor(dModel: number, heads: number, options: TransformerEncoderLayerOptions = {}) {
    const {
      dimFeedforward = 2048,
      dropout = 0.1,
      activation = "relu",
      normFirst = false,
      layerNormEps: eps = 1e-5,
      bias = true,
      batchFirst = true,
    } = checkOptions("nn.TransformerEncoderLayer", options, transformerEncoderLayerOptionNames);
    super();
    this.selfAttn = new MultiheadAttention(dModel, heads, { bias, dropout, batchFirst });
    this.linear1 = new Linear(dModel, dimFeedforward, { bias });
    this.dropout = new Dropout(dropout);
    this.linear2 = new Linear(dimFeedforward, dModel, { bias });
    this.norm1 = new LayerNorm(dModel, { eps, bias });
    this.norm2 = new LayerNorm(dModel, { eps, bias });
    this.dropout1 = new Dropout(dropout);
    this.dropout2 = new Dropout(dropout);
    this.normFirst = normFirst;
    this.#activate = activation === "gelu" ? (x) => gelu(x) : relu;
  }

  /** [batch, rows, width] to the same shape; the options are passed to its attention. */
  forward(x: Tensor, options: AttendOptions = {}): Tensor {
    checkOptions("nn.TransformerEncoderLayer.forward", options, attendOptionNames);
    if (this.normFirst) {
      const attended = x.add(this.#attend(this.norm1.forward(x), options));
      return attended.add(this.#feedForward(this.norm2.forward(attended)));
    }
    const attended = this.norm1.forward(x.add(this.#attend(x, options)));
    return this.norm2.forward(attended.add(this.#feedForward(attended)));
  }

  #attend(x: Tensor, options: AttendOptions): Tensor {
    return this.dropout1.forward(this.selfAttn.forward(x, x, x, options));
  }

  #feedForward(x: Tensor): Tensor {
    const hidden = this.dropout.forward(this.#activate(this.linear1.forward(x)));
    return this.dropout2.forward(this.linear2.forward(hidden));
  }
}
