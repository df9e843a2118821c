/** The configs of Llama, Mistral, Qwen2 and Qwen3: one architecture with different fields. */

import { type ActivationName, activationField } from "../activations.js";
import { type RotarySizes, readRotary } from "../rotary.js";
import {
  badConfig,
  commonRules,
  flag,
  harmless,
  layerCount,
  type ModelConfig,
  only,
  optionalObject,
  optionalSize,
  optionalTexts,
  positive,
  probability,
  type ReadFieldsOptions,
  readFields,
  requireDivides,
  size,
} from "./fields.js";

/** The sizes of a `Llama`. */
export interface LlamaSizes {
  readonly vocabulary: number;
  readonly width: number;
  /** The width inside the feed-forward network. */
  readonly hidden: number;
  readonly layers: number;
  readonly heads: number;
  readonly keyHeads: number;
  readonly headWidth: number;
  readonly activation: ActivationName;
  readonly maxLength: number;
  readonly rotary: Pick<RotarySizes, "theta" | "scaling">;
  readonly eps: number;
  readonly isTied: boolean;
  /** A bias of the projections to queries, keys and values, and one of the projection after attention. */
  readonly attentionBias: boolean;
  readonly outputBias: boolean;
  readonly mlpBias: boolean;
  /** Norms of queries and keys. */
  readonly qkNorm: boolean;
  readonly attentionDropout: number;
  /** The window of each layer; null for all earlier positions. */
  readonly windows: readonly (number | null)[];
  readonly initializerRange: number;
}

export const llamaTypes = ["llama", "mistral", "qwen2", "qwen3"] as const;
export type LlamaType = (typeof llamaTypes)[number];

/** Fields of all four. Fallbacks are those of Hugging Face's classes. */
const shared = {
  ...commonRules,
  vocab_size: size(32_000),
  hidden_size: size(4096),
  intermediate_size: size(11_008),
  num_hidden_layers: layerCount(32),
  num_attention_heads: size(32),
  num_key_value_heads: optionalSize(),
  head_dim: optionalSize(),
  hidden_act: activationField("silu"),
  max_position_embeddings: size(2048),
  rms_norm_eps: positive(1e-6),
  rope_theta: positive(10_000),
  rope_scaling: optionalObject,
  rope_parameters: optionalObject,
  rope_interleaved: only(false),
  attention_dropout: probability(0),
  initializer_range: positive(0.02),
  tie_word_embeddings: flag(false),
  /** Splits of matrix products, which change rounding only. */
  pretraining_tp: harmless,
} as const;

/** Sliding windows, as Qwen's configs have them. */
const qwenWindows = {
  use_sliding_window: flag(false),
  sliding_window: optionalSize(),
  max_window_layers: {
    ...size(28),
    parse: (value: unknown) =>
      Number.isSafeInteger(value) && Number(value) >= 0 ? Number(value) : undefined,
  },
  layer_types: optionalTexts,
} as const;

const tables = {
  llama: { ...shared, attention_bias: flag(false), mlp_bias: flag(false) },
  mistral: { ...shared, sliding_window: optionalSize(), attention_bias: only(false), mlp_bias: only(false) },
  qwen2: {
    ...shared,
    ...qwenWindows,
    attention_bias: only(true),
    mlp_bias: only(false),
    use_mrope: only(false),
  },
  qwen3: { ...shared, ...qwenWindows, attention_bias: flag(false), mlp_bias: only(false) },
} as const;

/** Fallbacks that differ from those of Llama. */
const ownDefaults: Readonly<Record<LlamaType, ModelConfig>> = {
  llama: {},
  mistral: {
    intermediate_size: 14_336,
    num_key_value_heads: 8,
    max_position_embeddings: 131_072,
    sliding_window: 4096,
  },
  qwen2: {
    vocab_size: 151_936,
    intermediate_size: 22_016,
    num_key_value_heads: 32,
    max_position_embeddings: 32_768,
    sliding_window: 4096,
  },
  qwen3: {
    ...{ vocab_size: 151_936, intermediate_size: 22_016, num_key_value_heads: 32, head_dim: 128 },
    ...{ max_position_embeddings: 32_768, sliding_window: 4096 },
  },
};

/** Reads and checks a config. */
export function readLlamaConfig(
  model: LlamaType,
  config: ModelConfig,
  options: ReadFieldsOptions,
): LlamaSizes {
  const { rope_theta, rope_scaling, rope_parameters, ...fields } = readFields(
    model,
    tables[model],
    { ...ownDefaults[model], ...config },
    options,
  );
  const { hidden_size: width, num_attention_heads: heads, num_hidden_layers: layers } = fields;
  const keyHeads = fields.num_key_value_heads ?? heads;
  if (fields.head_dim === null) requireDivides(model, width, "hidden_size", heads, "num_attention_heads");
  requireDivides(model, heads, "num_attention_heads", keyHeads, "num_key_value_heads");
  const headWidth = fields.head_dim ?? width / heads;
  requireDivides(model, headWidth, "the width of a head", 2, "2");
  return {
    ...{ width, heads, keyHeads, headWidth, layers },
    vocabulary: fields.vocab_size,
    hidden: fields.intermediate_size,
    activation: fields.hidden_act,
    maxLength: fields.max_position_embeddings,
    rotary: readRotary(model, { rope_theta, rope_scaling, rope_parameters }, fields.max_position_embeddings),
    eps: fields.rms_norm_eps,
    isTied: fields.tie_word_embeddings,
    attentionBias: fields.attention_bias,
    outputBias: model !== "qwen2" && fields.attention_bias,
    mlpBias: fields.mlp_bias,
    qkNorm: model === "qwen3",
    attentionDropout: fields.attention_dropout,
    windows: windowsOf(model, fields),
    initializerRange: fields.initializer_range,
  };
}

interface WindowFields {
  readonly num_hidden_layers: number;
  readonly sliding_window?: number | null;
  readonly use_sliding_window?: boolean;
  readonly max_window_layers?: number;
  readonly layer_types?: readonly string[] | null;
}

function windowsOf(model: LlamaType, fields: WindowFields): readonly (number | null)[] {
  const {
    use_sliding_window: isUsed = true,
    max_window_layers: first = 0,
    layer_types: types = null,
  } = fields;
  const layers = fields.num_hidden_layers;
  const window = (model !== "llama" && isUsed && fields.sliding_window) || null;
  const known = ["full_attention", "sliding_attention"];
  if (types !== null && (types.length !== layers || !types.every((type) => known.includes(type))))
    throw badConfig(
      model,
      `layer_types must have one of ${known.join(", ")} for each of the ${layers} layers`,
    );
  return Array.from({ length: layers }, (_, layer) =>
    types === null ? (layer >= first ? window : null) : types[layer] === "sliding_attention" ? window : null,
  );
}
