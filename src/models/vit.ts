/** ViT: a transformer on patches of images, with norms before attention and feed-forward, and a classifier. */

import { HoldfastError } from "../errors/index.js";
import {
  Conv2d,
  Dropout,
  functional,
  init,
  LayerNorm,
  type Linear,
  Module,
  ModuleList,
  Parameter,
} from "../nn/index.js";
import { cat, checkpoint, type Tensor } from "../tensor/index.js";
import type { VitSizes } from "./configs/encoders.js";
import type { ModelConfig } from "./configs/fields.js";
import { Intermediate, SelfAttention } from "./encoder.js";
import type { HubLayout } from "./hub-layout.js";
import { linear } from "./layers.js";
import { PretrainedModel } from "./pretrained-model.js";

const hubLayout: HubLayout = {
  ...{ prefix: "vit", heads: ["classifier"], names: {}, transposed: [] },
  // Parts that a classifier lacks.
  ignored: /(^|\.)pooler\.|(^|\.)embeddings\.mask_token$/,
};

/** A token for the class and one for each patch, with their positions. */
class Embeddings extends Module {
  readonly clsToken: Parameter; // [1, 1, width]
  readonly positionEmbeddings: Parameter; // [1, 1 + patches, width]
  readonly patchEmbeddings: { readonly projection: Conv2d };
  readonly dropout: Dropout;

  constructor({ width, channels, imageSize, patchSize, dropout, initializerRange: std }: VitSizes) {
    super();
    const patches = (imageSize[0] / patchSize[0]) * (imageSize[1] / patchSize[1]);
    this.clsToken = new Parameter([1, 1, width], init.normal(0, std));
    this.positionEmbeddings = new Parameter([1, 1 + patches, width], init.normal(0, std));
    const projection = new Conv2d(channels, width, patchSize, { stride: patchSize });
    projection.weight.initialize(init.normal(0, std));
    projection.bias?.initialize(init.zeros());
    this.patchEmbeddings = { projection };
    this.dropout = new Dropout(dropout);
  }

  forward(images: Tensor): Tensor {
    const patches = this.patchEmbeddings.projection.forward(images).flatten(2).transpose(1, 2); // [B, patches, width]
    const [batch = 1, , width = 1] = patches.shape;
    const tokens = cat([this.clsToken.expand([batch, 1, width]).to(patches.dtype), patches], 1);
    return this.dropout.forward(tokens.add(this.positionEmbeddings));
  }
}

class Layer extends Module {
  readonly attention: { readonly attention: SelfAttention; readonly output: { readonly dense: Linear } };
  readonly intermediate: Intermediate;
  readonly output: { readonly dense: Linear };
  readonly layernormBefore: LayerNorm;
  readonly layernormAfter: LayerNorm;
  readonly dropout: Dropout;

  constructor(sizes: VitSizes) {
    super();
    const { width, hidden, eps, initializerRange: std } = sizes;
    this.attention = {
      attention: new SelfAttention(sizes),
      output: { dense: linear(width, width, { bias: true, std }) },
    };
    this.intermediate = new Intermediate(sizes);
    this.output = { dense: linear(hidden, width, { bias: true, std }) };
    this.layernormBefore = new LayerNorm(width, { eps });
    this.layernormAfter = new LayerNorm(width, { eps });
    this.dropout = new Dropout(sizes.dropout);
  }

  forward(x: Tensor): Tensor {
    const { attention, output } = this.attention;
    const attended = output.dense.forward(attention.forward(this.layernormBefore.forward(x)));
    const h = x.add(this.dropout.forward(attended));
    const fed = this.output.dense.forward(this.intermediate.forward(this.layernormAfter.forward(h)));
    return h.add(this.dropout.forward(fed));
  }
}

/**
 * ViT. `modelFromConfig` makes one from a config.json with the model type vit. With the architecture `ViTForImageClassification` it has a
 * classifier.
 *
 * @example
 * ```ts
 * import { device, modelFromConfig, randn } from "holdfast";
 * const cpu = await device("cpu");
 * const sizes = { hidden_size: 8, intermediate_size: 16, num_hidden_layers: 1, num_attention_heads: 2, image_size: 8, patch_size: 4 };
 * const head = { architectures: ["ViTForImageClassification"], num_labels: 3 };
 * const model = modelFromConfig({ model_type: "vit", ...sizes, ...head }).to(cpu);
 * console.log(model.forward(randn([5, 3, 8, 8])).shape); // → [ 5, 3 ]
 * cpu.close();
 * ```
 */
export class Vit extends PretrainedModel {
  override readonly hubLayout = hubLayout;
  readonly embeddings: Embeddings;
  readonly encoder: { readonly layer: ModuleList<Layer> };
  readonly layernorm: LayerNorm;
  classifier: Linear | null;
  /** Computes layers again in backward, for less memory: gradient checkpointing. Set it outside of steps. */
  gradientCheckpointing = false;
  readonly #sizes: VitSizes;

  constructor(sizes: VitSizes, config: ModelConfig = {}) {
    super(config);
    const { width, layers, labels, eps, hasClassifier, initializerRange: std } = sizes;
    this.#sizes = sizes;
    this.embeddings = new Embeddings(sizes);
    this.encoder = { layer: new ModuleList(Array.from({ length: layers }, () => new Layer(sizes))) };
    this.layernorm = new LayerNorm(width, { eps });
    this.classifier = hasClassifier ? linear(width, labels, { bias: true, std }) : null;
  }

  /**
   * The shape of an image.
   *
   * @internal
   */
  get imageShape(): Pick<VitSizes, "channels" | "imageSize"> {
    const { channels, imageSize } = this.#sizes;
    return { channels, imageSize };
  }

  /**
   * Images [B, channels, height, width] to the states after the last norm, [B, 1 + patches, width]: first that of the class.
   *
   * @example
   * ```ts
   * import { device, modelFromConfig, randn } from "holdfast";
   * const cpu = await device("cpu");
   * const sizes = { hidden_size: 8, intermediate_size: 16, num_hidden_layers: 1, num_attention_heads: 2, image_size: 8, patch_size: 4 };
   * const model = modelFromConfig({ model_type: "vit", ...sizes }).to(cpu);
   * console.log(model.hidden(randn([5, 3, 8, 8])).shape); // → [ 5, 5, 8 ]
   * cpu.close();
   * ```
   */
  hidden(images: Tensor): Tensor {
    const { channels, imageSize } = this.#sizes;
    const expected = [channels, ...imageSize];
    if (images.ndim !== 4 || images.shape.slice(1).join() !== expected.join()) {
      throw new HoldfastError(
        "BAD_SHAPE",
        `ViT got images [${images.shape.join(", ")}]; pass [batch, ${expected.join(", ")}].`,
      );
    }
    let x = this.embeddings.forward(images);
    for (const layer of this.encoder.layer)
      x = this.gradientCheckpointing ? checkpoint((y: Tensor) => layer.forward(y), x) : layer.forward(x);
    return this.layernorm.forward(x);
  }

  /** Images [B, channels, height, width] to logits of classes [B, labels], or without a classifier to states [B, 1 + patches, width]. */
  forward(images: Tensor): Tensor {
    const hidden = this.hidden(images);
    return this.classifier?.forward(hidden.select(1, 0)) ?? hidden;
  }

  /**
   * The cross entropy of classes, i32 [B].
   *
   * @example
   * ```ts
   * import { device, modelFromConfig, randn, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * const sizes = { hidden_size: 8, intermediate_size: 16, num_hidden_layers: 1, num_attention_heads: 2, image_size: 8, patch_size: 4 };
   * const model = modelFromConfig({ model_type: "vit", ...sizes, architectures: ["ViTForImageClassification"] }).to(cpu);
   * console.log(model.loss(randn([2, 3, 8, 8]), tensor([0, 1], { dtype: "i32" })).shape); // → []
   * cpu.close();
   * ```
   */
  loss(images: Tensor, labels: Tensor): Tensor {
    if (this.classifier) return functional.crossEntropy(this.forward(images), labels);
    throw new HoldfastError(
      "BAD_ARGUMENT",
      "This ViT has no classifier, so it has no loss: choose ViTForImageClassification in architectures.",
    );
  }
}
