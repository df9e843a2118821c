/** models: language models, encoders and image classifiers as Hugging Face defines them, from configs and folders. */

export type { ActivationName } from "./activations.js";
export { Bert, type BertOptions } from "./bert.js";
export type { BertSizes, EncoderSizes, VitSizes } from "./configs/encoders.js";
export type { ModelConfig } from "./configs/fields.js";
export type { Gpt2Sizes } from "./configs/gpt2.js";
export type { LlamaSizes } from "./configs/llama.js";
export type { DecodeOptions } from "./decoder-context.js";
export { type LoadPretrainedOptions, loadPretrained } from "./folders/load-pretrained.js";
export type { MatchOptions } from "./folders/match-tensors.js";
export { type SavePretrainedOptions, savePretrained } from "./folders/save-pretrained.js";
export { Gpt2 } from "./gpt2.js";
export { KvCache, type KvCacheSizes } from "./kv-cache.js";
export { type LanguageLossOptions, LanguageModel } from "./language-model.js";
export { Llama } from "./llama.js";
export { LoraAdapter, type LoraSizes } from "./lora/adapter.js";
export { applyLora, type LoraOptions, mergeLora, removeLora, unmergeLora } from "./lora/apply.js";
export { type LoadLoraOptions, loadLora } from "./lora/load-lora.js";
export { saveLora } from "./lora/save-lora.js";
export { type ModelFromConfigOptions, type ModelOf, modelFromConfig } from "./model-from-config.js";
export type { LayerPast } from "./past-context.js";
export { PretrainedModel } from "./pretrained-model.js";
export type { RotaryScaling, RotarySizes } from "./rotary.js";
export { Vit } from "./vit.js";
