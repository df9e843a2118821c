/** The config of GPT-2. */

import { type ActivationName, activationField } from "../activations.js";
import {
  commonRules,
  flag,
  harmless,
  layerCount,
  type ModelConfig,
  optionalSize,
  positive,
  probability,
  type ReadFieldsOptions,
  readFields,
  requireDivides,
  size,
} from "./fields.js";

/** The sizes of a `Gpt2`. */
export interface Gpt2Sizes {
  readonly vocabulary: number;
  readonly maxLength: number;
  readonly width: number;
  /** The width inside the feed-forward network. */
  readonly hidden: number;
  readonly layers: number;
  readonly heads: number;
  readonly activation: ActivationName;
  readonly eps: number;
  readonly embeddingDropout: number;
  readonly residualDropout: number;
  readonly attentionDropout: number;
  /** The factor of the scores of each layer. */
  readonly scales: readonly number[];
  readonly isTied: boolean;
  readonly initializerRange: number;
}

const fields = {
  ...commonRules,
  vocab_size: size(50_257),
  n_positions: size(1024),
  n_embd: size(768),
  n_layer: layerCount(12),
  n_head: size(12),
  n_inner: optionalSize(),
  activation_function: activationField("gelu_new"),
  resid_pdrop: probability(0.1),
  embd_pdrop: probability(0.1),
  attn_pdrop: probability(0.1),
  layer_norm_epsilon: positive(1e-5),
  initializer_range: positive(0.02),
  scale_attn_weights: flag(true),
  scale_attn_by_inverse_layer_idx: flag(false),
  tie_word_embeddings: flag(true),
  n_ctx: harmless,
  /** Rounding of scores in half floats. */
  reorder_and_upcast_attn: harmless,
  // Of a head for sequences, which language models lack.
  summary_type: harmless,
  summary_use_proj: harmless,
  summary_activation: harmless,
  summary_proj_to_labels: harmless,
  summary_first_dropout: harmless,
} as const;

/** Reads and checks a config. */
export function readGpt2Config(config: ModelConfig, options: ReadFieldsOptions): Gpt2Sizes {
  const values = readFields("gpt2", fields, config, options);
  const { n_embd: width, n_head: heads, n_layer: layers } = values;
  requireDivides("gpt2", width, "n_embd", heads, "n_head");
  const scale = values.scale_attn_weights ? 1 / Math.sqrt(width / heads) : 1;
  const isByLayer = values.scale_attn_by_inverse_layer_idx;
  return {
    ...{ width, heads, layers },
    vocabulary: values.vocab_size,
    maxLength: values.n_positions,
    hidden: values.n_inner ?? 4 * width,
    activation: values.activation_function,
    eps: values.layer_norm_epsilon,
    embeddingDropout: values.embd_pdrop,
    residualDropout: values.resid_pdrop,
    attentionDropout: values.attn_pdrop,
    scales: Array.from({ length: layers }, (_, layer) => (isByLayer ? scale / (layer + 1) : scale)),
    isTied: values.tie_word_embeddings,
    initializerRange: values.initializer_range,
  };
}
