/** generate: texts of language models, with a cache, on the device. */

export { type GenerateTextOptions, generate } from "./generate.js";
export { type FinishReason, Generation, type GenerationResult } from "./generation.js";
export { type GenerationConfig, loadGenerationConfig, withDefaults } from "./generation-config.js";
export { Generator, type GeneratorOptions, type Prompt } from "./generator.js";
export type { GenerateOptions } from "./options.js";
