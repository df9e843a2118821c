/** generate: the texts of a language model for prompts, in one call. */

import { LanguageModel, type PretrainedModel } from "../models/index.js";
import type { Tokenizer } from "../text/index.js";
import type { GenerationResult } from "./generation.js";
import { Generator, type GeneratorOptions, type Prompt } from "./generator.js";
import { defaultMaxNewTokens, type GenerateOptions } from "./options.js";

/** Options of `generate`: those of a text, and of the `Generator` that it makes. */
export interface GenerateTextOptions extends GenerateOptions, Omit<GeneratorOptions, "stopIds"> {
  /** Maximum number of tokens of a prompt and its text. Default: what the longest prompt needs. */
  readonly maxLength?: number;
}

/** The maximum lengths of caches, if it is not given, are multiples of this. */
const lengthStep = 128;

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
  const inputs = tokenizer ? prompts.map((prompt) => idsOf(prompt, tokenizer)) : prompts;
  const generator = new Generator(model, {
    slots: slots ?? Math.min(prompts.length, maxSlots),
    maxLength: maxLength ?? neededLength(model, inputs, options.maxNewTokens),
    ...(tokenizer && { tokenizer }),
    ...(cacheDtype && { cacheDtype }),
  });
  try {
    const generations = inputs.map((prompt) => generator.start(prompt, options));
    return await Promise.all(generations.map((generation) => generation.result()));
  } finally {
    generator.close();
  }
}

function idsOf(prompt: Prompt, tokenizer: Tokenizer): ArrayLike<number> {
  return typeof prompt === "string" ? tokenizer.encode(prompt) : prompt;
}

/** A model may have a maximum length whose cache would not fit into memory. */
function neededLength(
  model: PretrainedModel,
  prompts: readonly Prompt[],
  maxNewTokens = defaultMaxNewTokens,
): number {
  const limit = model instanceof LanguageModel ? model.maxLength : lengthStep;
  const longest = prompts.reduce((max, { length }) => Math.max(max, length), 0) + maxNewTokens;
  return Number.isSafeInteger(longest)
    ? Math.min(limit, Math.ceil(longest / lengthStep) * lengthStep)
    : limit;
}
