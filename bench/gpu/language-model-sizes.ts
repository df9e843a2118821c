/** Configs of models in the benchmarks. */

/** The sizes of Qwen2.5-0.5B. */
export const qwenHalfBillion = {
  model_type: "qwen2",
  vocab_size: 151_936,
  hidden_size: 896,
  intermediate_size: 4864,
  num_hidden_layers: 24,
  num_attention_heads: 14,
  num_key_value_heads: 2,
  max_position_embeddings: 32_768,
  rms_norm_eps: 1e-6,
  rope_theta: 1_000_000,
  tie_word_embeddings: true,
  hidden_act: "silu",
} as const;

/** The sizes of Qwen2.5-1.5B. */
export const qwenLarger = {
  ...qwenHalfBillion,
  hidden_size: 1536,
  intermediate_size: 8960,
  num_hidden_layers: 28,
  num_attention_heads: 12,
} as const;

/** The sizes of Qwen2.5-7B. */
export const qwenSevenBillion = {
  ...qwenHalfBillion,
  vocab_size: 152_064,
  hidden_size: 3584,
  intermediate_size: 18_944,
  num_hidden_layers: 28,
  num_attention_heads: 28,
  num_key_value_heads: 4,
  tie_word_embeddings: false,
} as const;
