/** BERT: an encoder with learned positions and norms after attention and feed-forward, and its heads for masked words and for classes. */

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
import { arange, checkpoint, type Tensor, zeros } from "../tensor/index.js";
import { activate } from "./activations.js";
import type { BertSizes } from "./configs/encoders.js";
import type { ModelConfig } from "./configs/fields.js";
import { Intermediate, SelfAttention } from "./encoder.js";
import type { HubLayout } from "./hub-layout.js";
import { linear } from "./layers.js";
import { PretrainedModel } from "./pretrained-model.js";

const hubLayout: HubLayout = {
  ...{ prefix: "bert", heads: ["cls", "classifier"], transposed: [] },
  names: { layerNorm: "LayerNorm" },
  // Tables of positions, copies of tied weights, and heads that this model lacks.
  ignored:
    /(^|\.)embeddings\.position_ids$|^cls\.predictions\.decoder\.|^cls\.seq_relationship\.|(^|\.)pooler\./,
};

function table(rows: number, width: number, std: number): Embedding {
  const embedding = new Embedding(rows, width);
  embedding.weight = new Parameter([rows, width], init.normal(0, std));
  return embedding;
}

class Embeddings extends Module {
  readonly wordEmbeddings: Embedding;
  readonly positionEmbeddings: Embedding;
  readonly tokenTypeEmbeddings: Embedding;
  readonly layerNorm: LayerNorm;
  readonly dropout: Dropout;

  constructor({ vocabulary, maxLength, tokenTypes, width, eps, dropout, initializerRange: std }: BertSizes) {
    super();
    this.wordEmbeddings = table(vocabulary, width, std);
    this.positionEmbeddings = table(maxLength, width, std);
    this.tokenTypeEmbeddings = table(tokenTypes, width, std);
    this.layerNorm = new LayerNorm(width, { eps });
    this.dropout = new Dropout(dropout);
  }

  forward(ids: Tensor, { tokenTypes, positions }: BertOptions): Tensor {
    const { device } = ids;
    const places = positions ?? arange(0, ids.shape[1] ?? 0, 1, { device }).unsqueeze(0);
    const types = tokenTypes ?? zeros([1, 1], { dtype: "i32", device });
    const sum = this.wordEmbeddings.forward(ids).add(this.tokenTypeEmbeddings.forward(types));
    return this.dropout.forward(this.layerNorm.forward(sum.add(this.positionEmbeddings.forward(places))));
  }
}

/** A linear layer, dropout, a residual and a norm. */
class Output extends Module {
  dense: Linear;
  readonly layerNorm: LayerNorm;
  readonly dropout: Dropout;

  constructor(inputs: number, { width, eps, dropout, initializerRange: std }: BertSizes) {
    super();
    this.dense = linear(inputs, width, { bias: true, std });
    this.layerNorm = new LayerNorm(width, { eps });
    this.dropout = new Dropout(dropout);
  }

  forward(x: Tensor, residual: Tensor): Tensor {
    return this.layerNorm.forward(this.dropout.forward(this.dense.forward(x)).add(residual));
  }
}

class Layer extends Module {
  readonly attention: { readonly self: SelfAttention; readonly output: Output };
  readonly intermediate: Intermediate;
  readonly output: Output;

  constructor(sizes: BertSizes) {
    super();
    this.attention = { self: new SelfAttention(sizes), output: new Output(sizes.width, sizes) };
    this.intermediate = new Intermediate(sizes);
    this.output = new Output(sizes.hidden, sizes);
  }

  forward(x: Tensor, mask: Tensor | null): Tensor {
    const attended = this.attention.output.forward(this.attention.self.forward(x, mask), x);
    return this.output.forward(this.intermediate.forward(attended), attended);
  }
}

/** The head for masked words. Its last matrix is the table of words. */
class Predictions extends Module {
  readonly transform: { readonly dense: Linear; readonly layerNorm: LayerNorm };
  readonly bias: Parameter;
  readonly #activation: BertSizes["activation"];

  constructor({ width, vocabulary, eps, activation, initializerRange: std }: BertSizes) {
    super();
    this.transform = {
      dense: linear(width, width, { bias: true, std }),
      layerNorm: new LayerNorm(width, { eps }),
    };
    this.bias = new Parameter([vocabulary], init.zeros());
    this.#activation = activation;
  }

  forward(hidden: Tensor, words: Parameter): Tensor {
    const { dense, layerNorm } = this.transform;
    const transformed = layerNorm.forward(activate(this.#activation, dense.forward(hidden)));
    return functional.linear(transformed, words, this.bias);
  }
}

/** Options of a call of `Bert`. */
export interface BertOptions {
  /** i32 [B, T]: the segment of each token. Default: 0. */
  readonly tokenTypes?: Tensor;
  /** [B, T], of bools or integers: false or 0 for padding, which no token attends to. */
  readonly attentionMask?: Tensor;
  /** i32 [B, T] or [1, T]. Default: 0, 1, 2, … */
  readonly positions?: Tensor;
}

/**
 * BERT. `modelFromConfig` makes one from a config.json with the model type bert. The first of its `architectures` selects the head:
 * `BertForMaskedLM`, `BertForSequenceClassification`, or none with `BertModel`.
 *
 * @example
 * ```ts
 * import { device, modelFromConfig, tensor } from "holdfast";
 * const cpu = await device("cpu");
 * const sizes = { vocab_size: 20, hidden_size: 8, intermediate_size: 16, num_hidden_layers: 1, num_attention_heads: 2 };
 * const head = { architectures: ["BertForSequenceClassification"], num_labels: 3 };
 * const model = modelFromConfig({ model_type: "bert", ...sizes, ...head }).to(cpu);
 * console.log(model.forward(tensor([[3, 1, 4, 0]], { dtype: "i32" })).shape); // → [ 1, 3 ]
 * cpu.close();
 * ```
 */
export class Bert extends PretrainedModel {
  override readonly hubLayout = hubLayout;
  readonly embeddings: Embeddings;
  readonly encoder: { readonly layer: ModuleList<Layer> };
  /** The state of the first token for classes. */
  readonly pooler: { readonly dense: Linear } | null;
  readonly cls: { readonly predictions: Predictions } | null;
  classifier: Linear | null;
  readonly dropout: Dropout;
  /** Computes layers again in backward, for less memory: gradient checkpointing. Set it outside of steps. */
  gradientCheckpointing = false;
  readonly #sizes: BertSizes;

  constructor(sizes: BertSizes, config: ModelConfig = {}) {
    super(config);
    const { width, layers, head, labels, classifierDropout, initializerRange: std } = sizes;
    this.#sizes = sizes;
    this.embeddings = new Embeddings(sizes);
    this.encoder = { layer: new ModuleList(Array.from({ length: layers }, () => new Layer(sizes))) };
    this.pooler = head === "maskedLm" ? null : { dense: linear(width, width, { bias: true, std }) };
    this.cls = head === "maskedLm" ? { predictions: new Predictions(sizes) } : null;
    this.classifier = head === "classifier" ? linear(width, labels, { bias: true, std }) : null;
    this.dropout = new Dropout(classifierDropout);
  }

  /**
   * Token ids i32 [B, T] to the states of the last layer, [B, T, width].
   *
   * @example
   * ```ts
   * import { device, modelFromConfig, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * const sizes = { vocab_size: 20, hidden_size: 8, intermediate_size: 16, num_hidden_layers: 1, num_attention_heads: 2 };
   * const model = modelFromConfig({ model_type: "bert", ...sizes }).to(cpu);
   * console.log(model.hidden(tensor([[3, 1, 4, 0]], { dtype: "i32" })).shape); // → [ 1, 4, 8 ]
   * cpu.close();
   * ```
   */
  hidden(ids: Tensor, options: BertOptions = {}): Tensor {
    const [batch = 1, rows = 1] = ids.shape;
    const { maxLength } = this.#sizes;
    if (ids.ndim !== 2 || rows > maxLength) {
      throw new HoldfastError(
        "BAD_SHAPE",
        `BERT got token ids [${ids.shape.join(", ")}]; pass [batch, positions] with up to ${maxLength} positions.`,
        { numbers: { rows, maxLength } },
      );
    }
    const mask = options.attentionMask?.ne(0).reshape([batch, 1, 1, rows]) ?? null;
    let x = this.embeddings.forward(ids, options);
    for (const layer of this.encoder.layer)
      x = this.gradientCheckpointing
        ? checkpoint((y: Tensor) => layer.forward(y, mask), x)
        : layer.forward(x, mask);
    return x;
  }

  /** Token ids i32 [B, T] to logits of words [B, T, V], to logits of classes [B, labels], or without a head to states [B, T, width]. */
  forward(ids: Tensor, options: BertOptions = {}): Tensor {
    const hidden = this.hidden(ids, options);
    if (this.cls) return this.cls.predictions.forward(hidden, this.embeddings.wordEmbeddings.weight);
    if (!this.classifier) return hidden;
    return this.classifier.forward(this.dropout.forward(this.pool(hidden)));
  }

  /**
   * States [B, T, width] to one of each text, [B, width].
   *
   * @example
   * ```ts
   * import { device, modelFromConfig, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * const sizes = { vocab_size: 20, hidden_size: 8, intermediate_size: 16, num_hidden_layers: 1, num_attention_heads: 2 };
   * const model = modelFromConfig({ model_type: "bert", ...sizes }).to(cpu);
   * console.log(model.pool(model.hidden(tensor([[3, 1, 4, 0]], { dtype: "i32" }))).shape); // → [ 1, 8 ]
   * cpu.close();
   * ```
   */
  pool(hidden: Tensor): Tensor {
    if (this.pooler) return this.pooler.dense.forward(hidden.select(1, 0)).tanh();
    throw new HoldfastError(
      "BAD_ARGUMENT",
      "This BERT has no pooler: BertForMaskedLM has none. Use hidden().",
    );
  }

  /**
   * The cross entropy of labels i32: of words [B, T], where −100 does not count, or of classes [B].
   *
   * @example
   * ```ts
   * import { device, modelFromConfig, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * const sizes = { vocab_size: 20, hidden_size: 8, intermediate_size: 16, num_hidden_layers: 1, num_attention_heads: 2 };
   * const model = modelFromConfig({ model_type: "bert", ...sizes, architectures: ["BertForMaskedLM"] }).to(cpu);
   * const [ids, labels] = [[3, 1, 4, 0], [-100, 7, -100, -100]].map((row) => tensor([row], { dtype: "i32" }));
   * if (ids && labels) console.log(model.loss(ids, labels).shape); // → []
   * cpu.close();
   * ```
   */
  loss(ids: Tensor, labels: Tensor, options: BertOptions = {}): Tensor {
    if (!this.cls && !this.classifier)
      throw new HoldfastError(
        "BAD_ARGUMENT",
        "This BERT has no head, so it has no loss. Choose one in architectures.",
      );
    const logits = this.forward(ids, options);
    return functional.crossEntropy(logits.reshape([-1, logits.shape.at(-1) ?? 1]), labels.reshape([-1]));
  }
}
