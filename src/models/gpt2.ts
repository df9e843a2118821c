/** GPT-2: a decoder with learned positions, layer norms before attention and feed-forward, and a head that is the embedding table. */

import { HoldfastError } from "../errors/index.js";
import {
  Dropout,
  Embedding,
  functional,
  init,
  LayerNorm,
  type Linear,
  Module,
  ModuleList,
  Parameter,
} from "../nn/index.js";
import type { Tensor } from "../tensor/index.js";
import { activate } from "./activations.js";
import type { ModelConfig } from "./configs/fields.js";
import type { Gpt2Sizes } from "./configs/gpt2.js";
import type { DecoderCall } from "./decoder-context.js";
import type { HubLayout } from "./hub-layout.js";
import type { KvCacheSizes } from "./kv-cache.js";
import { LanguageModel } from "./language-model.js";
import { linear } from "./layers.js";

const hubLayout: HubLayout = {
  ...{ prefix: "transformer", heads: ["lmHead"], transposed: ["cAttn", "cProj", "cFc"] },
  names: { ln1: "ln_1", ln2: "ln_2" },
  // Causal masks of old files.
  ignored: /(^|\.)h\.\d+\.attn\.(bias|masked_bias)$/,
};

/** Attention whose query, key and value are thirds of one projection. */
class Attention extends Module {
  cAttn: Linear;
  cProj: Linear;
  readonly #sizes: Gpt2Sizes;

  constructor(sizes: Gpt2Sizes) {
    super();
    const { width, layers, initializerRange: std } = sizes;
    this.#sizes = sizes;
    this.cAttn = linear(width, 3 * width, { bias: true, std });
    this.cProj = linear(width, width, { bias: true, std: std / Math.sqrt(2 * layers) });
  }

  forward(x: Tensor, context: DecoderCall, layer: number): Tensor {
    const { heads, width, scales, attentionDropout } = this.#sizes;
    const packed = this.cAttn.forward(x).unflatten(-1, [3, heads, width / heads]); // [B, T, 3, H, width / H]
    const [query, key, value] = [packed.select(2, 0), packed.select(2, 1), packed.select(2, 2)];
    const scale = scales[layer];
    const attended = context.attend(query, key, value, {
      layer,
      ...(scale !== undefined && { scale }),
      dropoutP: this.isTraining ? attentionDropout : 0,
    });
    return this.cProj.forward(attended);
  }
}

class Mlp extends Module {
  cFc: Linear;
  cProj: Linear;
  readonly #activation: Gpt2Sizes["activation"];

  constructor({ width, hidden, layers, activation, initializerRange: std }: Gpt2Sizes) {
    super();
    this.cFc = linear(width, hidden, { bias: true, std });
    this.cProj = linear(hidden, width, { bias: true, std: std / Math.sqrt(2 * layers) });
    this.#activation = activation;
  }

  forward(x: Tensor): Tensor {
    return this.cProj.forward(activate(this.#activation, this.cFc.forward(x)));
  }
}

class Block extends Module {
  readonly ln1: LayerNorm;
  readonly attn: Attention;
  readonly ln2: LayerNorm;
  readonly mlp: Mlp;
  readonly dropout: Dropout;

  constructor(sizes: Gpt2Sizes) {
    super();
    const { width, eps } = sizes;
    this.ln1 = new LayerNorm(width, { eps });
    this.attn = new Attention(sizes);
    this.ln2 = new LayerNorm(width, { eps });
    this.mlp = new Mlp(sizes);
    this.dropout = new Dropout(sizes.residualDropout);
  }

  forward(x: Tensor, context: DecoderCall, layer: number): Tensor {
    const attended = x.add(this.dropout.forward(this.attn.forward(this.ln1.forward(x), context, layer)));
    return attended.add(this.dropout.forward(this.mlp.forward(this.ln2.forward(attended))));
  }
}

/**
 * GPT-2. `modelFromConfig` makes one from a config.json with the model type gpt2.
 *
 * @example
 * ```ts
 * import { device, modelFromConfig, tensor } from "holdfast";
 * const cpu = await device("cpu");
 * const sizes = { vocab_size: 20, n_positions: 8, n_embd: 8, n_layer: 2, n_head: 2 };
 * const model = modelFromConfig({ model_type: "gpt2", ...sizes }).to(cpu);
 * console.log(model.h.length, model.forward(tensor([[3, 1, 4]], { dtype: "i32" })).shape); // → 2 [ 1, 3, 20 ]
 * cpu.close();
 * ```
 */
export class Gpt2 extends LanguageModel {
  override readonly hubLayout = hubLayout;
  readonly vocabularySize: number;
  readonly maxLength: number;
  readonly wte: Embedding;
  readonly wpe: Embedding;
  readonly dropout: Dropout;
  readonly h: ModuleList<Block>;
  readonly lnF: LayerNorm;
  /** Null if the head is the embedding table. */
  lmHead: Linear | null;
  readonly #sizes: Gpt2Sizes;

  constructor(sizes: Gpt2Sizes, config: ModelConfig = {}) {
    super(config);
    const { vocabulary, maxLength, width, layers, eps, isTied, initializerRange: std } = sizes;
    this.#sizes = sizes;
    this.vocabularySize = vocabulary;
    this.maxLength = maxLength;
    this.wte = new Embedding(vocabulary, width);
    this.wte.weight = new Parameter([vocabulary, width], init.normal(0, std));
    this.wpe = new Embedding(maxLength, width);
    this.wpe.weight = new Parameter([maxLength, width], init.normal(0, std));
    this.dropout = new Dropout(sizes.embeddingDropout);
    this.h = new ModuleList(Array.from({ length: layers }, () => new Block(sizes)));
    this.lnF = new LayerNorm(width, { eps });
    this.lmHead = isTied ? null : linear(width, vocabulary, { bias: false, std });
  }

  protected override decode(ids: Tensor, context: DecoderCall): Tensor {
    const { maxLength } = this.#sizes;
    if (context.rows > maxLength) {
      throw new HoldfastError(
        "BAD_SHAPE",
        `${context.rows} positions; this GPT-2 has ${maxLength}. Pass shorter texts.`,
        {
          numbers: { rows: context.rows, maxLength },
        },
      );
    }
    let hidden = this.dropout.forward(this.wte.forward(ids).add(this.wpe.forward(context.positions))); // [B, T, width]
    for (const [layer, block] of [...this.h].entries())
      hidden = this.runBlock((x) => block.forward(x, context, layer), hidden);
    return this.lnF.forward(hidden);
  }

  /** @internal */
  override head(hidden: Tensor): Tensor {
    return this.lmHead?.forward(hidden) ?? functional.linear(hidden, this.wte.weight);
  }

  protected override cacheSizes(): Omit<KvCacheSizes, "batch" | "maxLength"> {
    const { layers, heads, width } = this.#sizes;
    return { layers, keyHeads: heads, headWidth: width / heads };
  }

  protected override windows(): readonly (number | null)[] {
    return [null];
  }
}
