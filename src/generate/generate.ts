/** generate: the texts of a language model for prompts, in one call. */

import type { PretrainedModel } from "../models/index.js";
import type { GenerationResult } from "./generation.js";
import { Generator, type GeneratorOptions, type Prompt } from "./generator.js";
import type { GenerateOptions } from "./options.js";

/** Options of `generate`: those of a text, and of the `Generator` that it makes. */
export interface GenerateTextOptions extends GenerateOptions, Omit<GeneratorOptions, "stopIds"> {}

/** The most texts at a time, if `slots` is not given. */
const maxSlots = 32;

/**
 * Generates the texts of several prompts, and frees the memory. Prompts of any lengths run together. To read a text as it is generated, use a
 * `Generator`.
 *
 * @example
 * ```ts
 * import { ByteTokenizer, device, generate, modelFromConfig } from "holdfast";
 * const cpu = await device("cpu");
 * const sizes = { vocab_size: 256, n_positions: 64, n_embd: 16, n_layer: 2, n_head: 2 };
 * const model = modelFromConfig({ model_type: "gpt2", ...sizes }).to(cpu);
 * const [first, second] = await generate(model, ["One", "Another"], { tokenizer: new ByteTokenizer(), maxNewTokens: 8 });
 * console.log(first?.tokens.length, second?.finishReason); // → 8 length
 * cpu.close();
 * ```
 */
export async function generate(
  model: PretrainedModel,
  prompts: readonly Prompt[],
  { slots, maxLength, tokenizer, cacheDtype, ...options }: GenerateTextOptions = {},
): Promise<readonly GenerationResult[]> {
  if (prompts.length === 0) return [];
  const generator = new Generator(model, {
    slots: slots ?? Math.min(prompts.length, maxSlots),
    ...(maxLength !== undefined && { maxLength }),
    ...(tokenizer && { tokenizer }),
    ...(cacheDtype && { cacheDtype }),
  });
  try {
    const generations = prompts.map((prompt) => generator.start(prompt, options));
    return await Promise.all(generations.map((generation) => generation.result()));
  } finally {
    generator.close();
  }
}
