/** generation_config.json of a model folder: the settings that texts of the model have by default, with the meaning of transformers. */

import { join } from "node:path";
import { isThere, withFileError } from "../data/index.js";
import { readRegularFile } from "../files/index.js";
import { type JsonField, parseJson } from "../text/index.js";
import type { GenerateOptions } from "./options.js";

/** What a folder's generation_config.json says. */
export interface GenerationConfig {
  /** Options of `Generator.start` and `generate`. */
  readonly options: GenerateOptions;
  /** Fields that would change texts, and that Holdfast does not support. They have no effect. */
  readonly ignored: readonly string[];
}

const fileName = "generation_config.json";
const maxBytes = 2 ** 20;
const limits = { maxContainers: 1000, maxValues: 50_000, maxDepth: 16 };

/** The k of transformers if a text is drawn and neither the folder nor the caller names one. */
const usualTopK = 50;

/** Selects the likeliest token, as 0 does in transformers. */
const minTopP = 1e-6;

/** Fields that change texts unless they have these values. */
const neutral: Readonly<Record<string, readonly unknown[]>> = {
  num_beams: [1],
  num_beam_groups: [1],
  penalty_alpha: [],
  min_p: [0],
  typical_p: [1],
  epsilon_cutoff: [0],
  eta_cutoff: [0],
  top_h: [],
  diversity_penalty: [0],
  encoder_repetition_penalty: [1],
  no_repeat_ngram_size: [0],
  bad_words_ids: [],
  force_words_ids: [],
  min_length: [0],
  min_new_tokens: [0],
  forced_bos_token_id: [],
  forced_eos_token_id: [],
  exponential_decay_length_penalty: [],
  suppress_tokens: [],
  begin_suppress_tokens: [],
  sequence_bias: [],
  guidance_scale: [1],
  watermarking_config: [],
  dola_layers: [],
};

/**
 * Reads the settings of a model folder. Without the file, or without `do_sample`, the likeliest token is selected each time. With
 * `do_sample`, tokens are drawn with a temperature of 1 among the 50 likeliest, if the file does not say otherwise.
 *
 * @example
 * ```ts
 * import { mkdtempSync, writeFileSync } from "node:fs";
 * import { tmpdir } from "node:os";
 * import { join } from "node:path";
 * import { loadGenerationConfig } from "holdfast";
 * const folder = mkdtempSync(join(tmpdir(), "model-"));
 * writeFileSync(join(folder, "generation_config.json"), '{ "do_sample": true, "temperature": 0.6, "min_p": 0.1 }');
 * const { options, ignored } = loadGenerationConfig(folder);
 * console.log(options.temperature, options.topK, ignored); // → 0.6 50 [ 'min_p' ]
 * ```
 */
export function loadGenerationConfig(folder: string): GenerationConfig {
  const path = join(folder, fileName);
  if (!isThere(path)) return { options: {}, ignored: [] };
  const bytes = withFileError(`${path} can't be read`, path, () => readRegularFile(path, maxBytes));
  const config = parseJson(bytes, path, limits);
  const draws = config.get("do_sample").boolean(false);
  const temperature = optional(config.get("temperature"), (field) => real(field, 0, 1000)) ?? 1;
  const topK = optional(config.get("top_k"), (field) => field.whole(0, 2 ** 31 - 1)) ?? usualTopK;
  const topP = optional(config.get("top_p"), (field) => real(field, 0, 1)) ?? 1;
  const penalty = optional(config.get("repetition_penalty"), (field) => real(field, 0, 1e6));
  const maxNewTokens = optional(config.get("max_new_tokens"), (field) => field.whole(1, 2 ** 31 - 1));
  const stopIds = optional(config.get("eos_token_id"), idsOf);
  const stop = optional(config.get("stop_strings"), stringsOf);
  return {
    options: {
      ...(draws && { temperature, topK, topP: Math.max(topP, minTopP) }),
      ...(penalty !== undefined && penalty > 0 && { repetitionPenalty: penalty }),
      ...(maxNewTokens !== undefined && { maxNewTokens }),
      ...(stopIds && { stopIds }),
      ...(stop && { stop }),
    },
    ignored: Object.keys(neutral).filter((name) => {
      const { value, isAbsent } = config.get(name);
      return !isAbsent && value !== false && !neutral[name]?.includes(value);
    }),
  };
}

/**
 * Options of a caller on top of those of the folder. A temperature alone draws among the 50 likeliest tokens, as in transformers.
 */
export function withDefaults(options: GenerateOptions, defaults: GenerateOptions): GenerateOptions {
  const merged = { ...defaults, ...definedIn(options) };
  const draws = (merged.temperature ?? 0) > 0;
  return draws && merged.topK === undefined ? { ...merged, topK: usualTopK } : merged;
}

function definedIn(options: GenerateOptions): GenerateOptions {
  return Object.fromEntries(Object.entries(options).filter(([, value]) => value !== undefined));
}

function optional<Value>(field: JsonField, read: (field: JsonField) => Value): Value | undefined {
  return field.isAbsent ? undefined : read(field);
}

function real(field: JsonField, min: number, max: number): number {
  const value = field.number();
  if (value < min || value > max) throw field.wrong(`a number from ${min} to ${max}`);
  return value;
}

function idsOf(field: JsonField): readonly number[] {
  const fields = field.isList ? field.items(1000) : [field];
  return fields.map((item) => item.whole(0, 2 ** 31 - 1));
}

function stringsOf(field: JsonField): readonly string[] {
  const fields = field.isList ? field.items(64) : [field];
  return fields.map((item) => item.string(1000)).filter((text) => text !== "");
}
