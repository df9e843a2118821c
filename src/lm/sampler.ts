/** Writes texts with a model while it is trained, for prompts. The same weights give the same texts. */

import { HoldfastError } from "../errors/index.js";
import { type GenerateOptions, Generator, type Prompt } from "../generate/index.js";
import type { LanguageModel } from "../models/index.js";
import type { Tokenizer } from "../text/index.js";
import type { SampleText } from "./events.js";

/** The texts to write while the model is trained. */
export interface SampleOptions {
  readonly prompts: readonly string[];
  /** Default: prompts are beginnings of texts. If true, they are messages, written as the tokenizer's chat template does. */
  readonly isChat?: boolean;
  /** Max. new tokens of a text. Default: 64. */
  readonly maxTokens?: number;
  /** Default: 0, the likeliest token each time. */
  readonly temperature?: number;
  /** Steps between two samples. Default: those between two evaluations. */
  readonly every?: number;
}

/** Texts at a time. */
const maxSlots = 8;

export class Sampler {
  readonly #generator: Generator;
  readonly #prompts: readonly { readonly prompt: string; readonly ids: Prompt; readonly seed: number }[];
  readonly #options: GenerateOptions;

  constructor(model: LanguageModel, tokenizer: Tokenizer, options: SampleOptions, seed: number) {
    const { prompts, maxTokens = 64, temperature = 0 } = options;
    const all = encodePrompts(model, tokenizer, options);
    this.#prompts = all.map(({ prompt, ids }, index) => ({ prompt, ids, seed: seed + index }));
    const longest = this.#prompts.reduce((max, { ids }) => Math.max(max, ids.length), 0);
    this.#options = { maxNewTokens: maxTokens, temperature };
    this.#generator = new Generator(model, {
      slots: Math.min(maxSlots, prompts.length),
      maxLength: Math.max(2, Math.min(model.maxLength, longest + maxTokens)),
      tokenizer,
    });
  }

  /** Returns undefined if the signal ends it. */
  async run(signal: AbortSignal | undefined): Promise<readonly SampleText[] | undefined> {
    const texts = this.#prompts.map(({ prompt, ids, seed }) => ({
      prompt,
      generation: this.#generator.start(ids, { ...this.#options, seed, ...(signal && { signal }) }),
    }));
    try {
      const results: SampleText[] = [];
      for (const { prompt, generation } of texts)
        results.push({ prompt, text: (await generation.result()).text });
      return results;
    } catch (error) {
      if (signal?.aborted) return undefined;
      throw error;
    }
  }

  close(): void {
    this.#generator.close();
  }
}

/** The ids of prompts. Throws if one does not fit the model. */
export function encodePrompts(
  model: LanguageModel,
  tokenizer: Tokenizer,
  { prompts, isChat = false }: SampleOptions,
): readonly { readonly prompt: string; readonly ids: Int32Array }[] {
  return prompts.map((prompt) => {
    const ids = isChat ? chatIds(tokenizer, prompt) : tokenizer.encode(prompt);
    if (ids.length > 0 && ids.length < model.maxLength) return { prompt, ids };
    const shown = prompt.length > 20 ? `${prompt.slice(0, 20)}…` : prompt;
    throw new HoldfastError(
      "BAD_ARGUMENT",
      `The prompt ${JSON.stringify(shown)} has ${ids.length} tokens; the model has ${model.maxLength} positions. Pass a prompt of 1 to ${model.maxLength - 1} tokens.`,
      { numbers: { tokens: ids.length, maxLength: model.maxLength } },
    );
  });
}

function chatIds(tokenizer: Tokenizer, prompt: string): Int32Array {
  const messages = [{ role: "user", content: prompt }];
  const text = tokenizer.applyChatTemplate(messages, { addGenerationPrompt: true });
  return tokenizer.encode(text, { addSpecialTokens: false });
}
