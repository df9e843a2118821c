/** TransformerDecoderLayer: attention to the target, attention to the memory, and a feed-forward network. */

import { checkOptions, type OptionNames } from "../../errors/index.js";
import type { Tensor } from "../../tensor/index.js";
import { gelu, relu } from "../functional.js";
import { Module } from "../module.js";
import { MultiheadAttention } from "./attention.js";
import { Dropout } from "./dropout.js";
import { Linear } from "./linear.js";
import { LayerNorm } from "./normalisation.js";
import type { TransformerEncoderLayerOptions } from "./transformer.js";
import { transformerEncoderLayerOptionNames } from "./transformer.js";

/** Masks of a decoder; see the options of `MultiheadAttention`. */
export interface DecodeOptions {
  readonly tgtMask?: Tensor | null;
  readonly memoryMask?: Tensor | null;
  readonly tgtKeyPaddingMask?: Tensor | null;
  readonly memoryKeyPaddingMask?: Tensor | null;
  readonly tgtIsCausal?: boolean;
  readonly memoryIsCausal?: boolean;
}

export const decodeOptionNames: OptionNames<DecodeOptions> = {
  tgtMask: true,
  memoryMask: true,
  tgtKeyPaddingMask: true,
  memoryKeyPaddingMask: true,
  tgtIsCausal: true,
  memoryIsCausal: true,
};

/**
 * One decoder layer of a transformer.
 *
 * @example
 * ```ts
 * import { device, nn, randn } from "holdfast";
 * const cpu = await device("cpu");
 * const layer = new nn.TransformerDecoderLayer(8, 2, { dimFeedforward: 16 }).to(cpu);
 * console.log(layer.forward(randn([4, 5, 8]), randn([4, 7, 8]), { tgtIsCausal: true }).shape); // → [ 4, 5, 8 ]
 * cpu.close();
 * ```
 */
export class TransformerDecoderLayer extends Module {
  readonly selfAttn: MultiheadAttention;
  readonly multiheadAttn: MultiheadAttention;
  readonly linear1: Linear;
  readonly dropout: Dropout;
  readonly linear2: Linear;
  readonly norm1: LayerNorm;
  readonly norm2: LayerNorm;
  readonly norm3: LayerNorm;
  readonly dropout1: Dropout;
  readonly dropout2: Dropout;
  readonly dropout3: Dropout;
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
    } = checkOptions("nn.TransformerDecoderLayer", options, transformerEncoderLayerOptionNames);
    super();
    this.selfAttn = new MultiheadAttention(dModel, heads, { bias, dropout, batchFirst });
    this.multiheadAttn = new MultiheadAttention(dModel, heads, { bias, dropout, batchFirst });
    this.linear1 = new Linear(dModel, dimFeedforward, { bias });
    this.dropout = new Dropout(dropout);
    this.linear2 = new Linear(dimFeedforward, dModel, { bias });
    this.norm1 = new LayerNorm(dModel, { eps, bias });
    this.norm2 = new LayerNorm(dModel, { eps, bias });
    this.norm3 = new LayerNorm(dModel, { eps, bias });
    this.dropout1 = new Dropout(dropout);
    this.dropout2 = new Dropout(dropout);
    this.dropout3 = new Dropout(dropout);
    this.normFirst = normFirst;
    this.#activate = activation === "gelu" ? (x) => gelu(x) : relu;
  }

  /** A target [batch, rows, width] and a memory [batch, columns, width] to the target's shape. */
  forward(tgt: Tensor, memory: Tensor, options: DecodeOptions = {}): Tensor {
    checkOptions("nn.TransformerDecoderLayer.forward", options, decodeOptionNames);
    const { norm1, norm2, norm3 } = this;
    if (this.normFirst) {
      const own = tgt.add(this.#attendSelf(norm1.forward(tgt), options));
      const read = own.add(this.#attendMemory(norm2.forward(own), memory, options));
      return read.add(this.#feedForward(norm3.forward(read)));
    }
    const own = norm1.forward(tgt.add(this.#attendSelf(tgt, options)));
    const read = norm2.forward(own.add(this.#attendMemory(own, memory, options)));
    return norm3.forward(read.add(this.#feedForward(read)));
  }

  #attendSelf(x: Tensor, { tgtMask, tgtKeyPaddingMask, tgtIsCausal = false }: DecodeOptions): Tensor {
    const masks = { mask: tgtMask ?? null, keyPaddingMask: tgtKeyPaddingMask ?? null };
    return this.dropout1.forward(this.selfAttn.forward(x, x, x, { ...masks, isCausal: tgtIsCausal }));
  }

  #attendMemory(
    x: Tensor,
    memory: Tensor,
    { memoryMask, memoryKeyPaddingMask, memoryIsCausal = false }: DecodeOptions,
  ): Tensor {
    const masks = { mask: memoryMask ?? null, keyPaddingMask: memoryKeyPaddingMask ?? null };
    const attended = this.multiheadAttn.forward(x, memory, memory, { ...masks, isCausal: memoryIsCausal });
    return this.dropout2.forward(attended);
  }

  #feedForward(x: Tensor): Tensor {
    const hidden = this.dropout.forward(this.#activate(this.linear1.forward(x)));
    return this.dropout3.forward(this.linear2.forward(hidden));
  }
}
