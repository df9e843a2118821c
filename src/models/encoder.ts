/** The parts that BERT and ViT share: self-attention of all positions, and dense layers with an activation. */

import { functional, type Linear, Module } from "../nn/index.js";
import type { Tensor } from "../tensor/index.js";
import { activate } from "./activations.js";
import type { EncoderSizes } from "./configs/encoders.js";
import { linear } from "./layers.js";

/** Attention of heads, before its output projection. */
export class SelfAttention extends Module {
  query: Linear;
  key: Linear;
  value: Linear;
  readonly #sizes: EncoderSizes;

  constructor(sizes: EncoderSizes) {
    super();
    const { width, qkvBias: bias, initializerRange: std } = sizes;
    this.#sizes = sizes;
    this.query = linear(width, width, { bias, std });
    this.key = linear(width, width, { bias, std });
    this.value = linear(width, width, { bias, std });
  }

  /** [B, T, width] to the same shape; the mask is true where a column takes part. */
  forward(x: Tensor, mask: Tensor | null = null): Tensor {
    const { heads, width, attentionDropout } = this.#sizes;
    const split = (y: Tensor): Tensor => y.unflatten(-1, [heads, width / heads]); // [B, T, H, width / H]
    const [query, key, value] = [this.query, this.key, this.value].map((layer) =>
      split(layer.forward(x)),
    ) as [Tensor, Tensor, Tensor];
    const options = { dropoutP: this.isTraining ? attentionDropout : 0, rowsFirst: true };
    return functional.scaledDotProductAttention(query, key, value, mask, options).flatten(-2);
  }
}

/** A linear layer and the activation of the feed-forward network. */
export class Intermediate extends Module {
  dense: Linear;
  readonly #activation: EncoderSizes["activation"];

  constructor({ width, hidden, activation, initializerRange: std }: EncoderSizes) {
    super();
    this.dense = linear(width, hidden, { bias: true, std });
    this.#activation = activation;
  }

  forward(x: Tensor): Tensor {
    return activate(this.#activation, this.dense.forward(x));
  }
}
