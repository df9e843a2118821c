/**
 * Llama: the decoder of Llama 2 and 3, SmolLM, Mistral, Qwen2, Qwen2.5 and Qwen3: RMS norms before attention and a gated feed-forward
 * network, rotary embeddings, and fewer heads of keys than of queries.
 */

import {
  Embedding,
  functional,
  init,
  type Linear,
  Module,
  ModuleList,
  Parameter,
  RMSNorm,
} from "../nn/index.js";
import type { Tensor } from "../tensor/index.js";
import { activate } from "./activations.js";
import type { ModelConfig } from "./configs/fields.js";
import type { LlamaSizes } from "./configs/llama.js";
import type { DecoderCall } from "./decoder-context.js";
import type { HubLayout } from "./hub-layout.js";
import type { KvCacheSizes } from "./kv-cache.js";
import { LanguageModel } from "./language-model.js";
import { linear } from "./layers.js";
import { Rotary, type Rotation } from "./rotary.js";

const hubLayout: HubLayout = {
  ...{ prefix: "model", heads: ["lmHead"], names: {}, transposed: [] },
  ignored: /\.rotary_emb\.inv_freq$/,
};

/** Grouped-query attention with rotated queries and keys. */
class Attention extends Module {
  qProj: Linear;
  kProj: Linear;
  vProj: Linear;
  oProj: Linear;
  readonly qNorm: RMSNorm | null;
  readonly kNorm: RMSNorm | null;
  readonly #sizes: LlamaSizes;

  constructor(sizes: LlamaSizes) {
    super();
    const { width, heads, keyHeads, headWidth, attentionBias, outputBias, initializerRange: std } = sizes;
    this.#sizes = sizes;
    this.qProj = linear(width, heads * headWidth, { bias: attentionBias, std });
    this.kProj = linear(width, keyHeads * headWidth, { bias: attentionBias, std });
    this.vProj = linear(width, keyHeads * headWidth, { bias: attentionBias, std });
    this.oProj = linear(heads * headWidth, width, { bias: outputBias, std });
    const norm = (): RMSNorm | null => (sizes.qkNorm ? new RMSNorm(headWidth, { eps: sizes.eps }) : null);
    this.qNorm = norm();
    this.kNorm = norm();
  }

  forward(x: Tensor, context: DecoderCall, rotation: Rotation, layer: number): Tensor {
    const { heads, keyHeads, headWidth, attentionDropout, windows } = this.#sizes;
    const split = (y: Tensor, count: number): Tensor => y.unflatten(-1, [count, headWidth]); // [B, T, H, headWidth]
    const query = split(this.qProj.forward(x), heads);
    const key = split(this.kProj.forward(x), keyHeads);
    const value = split(this.vProj.forward(x), keyHeads);
    const attended = context.attend(
      this.qNorm?.forward(query) ?? query,
      this.kNorm?.forward(key) ?? key,
      value,
      { layer, window: windows[layer] ?? null, rotation, dropoutP: this.isTraining ? attentionDropout : 0 },
    );
    return this.oProj.forward(attended);
  }
}

/** The gated feed-forward network: down(activation(gate(x)) · up(x)). */
class GatedMlp extends Module {
  gateProj: Linear;
  upProj: Linear;
  downProj: Linear;
  readonly #activation: LlamaSizes["activation"];

  constructor({ width, hidden, mlpBias: bias, activation, initializerRange: std }: LlamaSizes) {
    super();
    this.gateProj = linear(width, hidden, { bias, std });
    this.upProj = linear(width, hidden, { bias, std });
    this.downProj = linear(hidden, width, { bias, std });
    this.#activation = activation;
  }

  forward(x: Tensor): Tensor {
    return this.downProj.forward(
      activate(this.#activation, this.gateProj.forward(x)).mul(this.upProj.forward(x)),
    );
  }
}

class Block extends Module {
  readonly selfAttn: Attention;
  readonly mlp: GatedMlp;
  readonly inputLayernorm: RMSNorm;
  readonly postAttentionLayernorm: RMSNorm;

  constructor(sizes: LlamaSizes) {
    super();
    const { width, eps } = sizes;
    this.selfAttn = new Attention(sizes);
    this.mlp = new GatedMlp(sizes);
    this.inputLayernorm = new RMSNorm(width, { eps });
    this.postAttentionLayernorm = new RMSNorm(width, { eps });
  }

  forward(x: Tensor, context: DecoderCall, rotation: Rotation, layer: number): Tensor {
    const attended = x.add(this.selfAttn.forward(this.inputLayernorm.forward(x), context, rotation, layer));
    return attended.add(this.mlp.forward(this.postAttentionLayernorm.forward(attended)));
  }
}

/**
 * A Llama-style decoder. `modelFromConfig` makes one from a config.json with the model type llama, mistral, qwen2 or qwen3.
 *
 * @example
 * ```ts
 * import { device, modelFromConfig, tensor } from "holdfast";
 * const cpu = await device("cpu");
 * const sizes = { vocab_size: 20, hidden_size: 8, intermediate_size: 16, num_hidden_layers: 2, num_attention_heads: 4 };
 * const model = modelFromConfig({ model_type: "qwen2", ...sizes, num_key_value_heads: 2 }).to(cpu);
 * console.log(model.layers.length, model.forward(tensor([[3, 1, 4]], { dtype: "i32" })).shape); // → 2 [ 1, 3, 20 ]
 * cpu.close();
 * ```
 */
export class Llama extends LanguageModel {
  override readonly hubLayout = hubLayout;
  readonly vocabularySize: number;
  readonly maxLength: number;
  readonly embedTokens: Embedding;
  readonly layers: ModuleList<Block>;
  readonly norm: RMSNorm;
  /** Null if the head is the embedding table. */
  lmHead: Linear | null;
  readonly rotary: Rotary;
  readonly #sizes: LlamaSizes;

  constructor(sizes: LlamaSizes, config: ModelConfig = {}) {
    super(config);
    const { vocabulary, width, layers, isTied, eps, initializerRange: std } = sizes;
    this.#sizes = sizes;
    this.vocabularySize = vocabulary;
    this.maxLength = sizes.maxLength;
    this.embedTokens = new Embedding(vocabulary, width);
    this.embedTokens.weight = new Parameter([vocabulary, width], init.normal(0, std));
    this.layers = new ModuleList(Array.from({ length: layers }, () => new Block(sizes)));
    this.norm = new RMSNorm(width, { eps });
    this.lmHead = isTied ? null : linear(width, vocabulary, { bias: false, std });
    this.rotary = new Rotary({ width: sizes.headWidth, ...sizes.rotary, maxLength: sizes.maxLength });
  }

  protected override decode(ids: Tensor, context: DecoderCall): Tensor {
    const rotation = this.rotary.forward(context.positions, context.columns);
    let hidden = this.embedTokens.forward(ids); // [B, T, width]
    for (const [layer, block] of [...this.layers].entries())
      hidden = this.runBlock((x) => block.forward(x, context, rotation, layer), hidden);
    return this.norm.forward(hidden);
  }

  /** @internal */
  override head(hidden: Tensor): Tensor {
    return this.lmHead?.forward(hidden) ?? functional.linear(hidden, this.embedTokens.weight);
  }

  protected override cacheSizes(): Omit<KvCacheSizes, "batch" | "maxLength"> {
    const { layers, keyHeads, headWidth } = this.#sizes;
    return { layers, keyHeads, headWidth };
  }

  protected override windows(): readonly (number | null)[] {
    return this.#sizes.windows;
  }
}
