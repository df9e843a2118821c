/**
 * Reads the config.json of a model with a table of known fields. A file is untrusted, and a field that Holdfast does not know may change
 * the arithmetic: so every field is in the table, with the values that the model supports, and any other is rejected by name.
 */

import { quote } from "../../data/index.js";
import { HoldfastError } from "../../errors/index.js";

/** A parsed config.json. */
export type ModelConfig = Readonly<Record<string, unknown>>;

/** A known field: how its value is read, and its value if the config has none, or null. Without a fallback it is required. */
export interface Field<T> {
  readonly parse: (value: unknown) => T | undefined;
  /** Completes "it must be …". */
  readonly expects: string;
  readonly fallback?: T;
}

export type FieldTable = Readonly<Record<string, Field<unknown>>>;

/** The values of a table's fields. */
export type FieldValues<Table extends FieldTable> = {
  readonly [Name in keyof Table]: Table[Name] extends Field<infer T> ? T : never;
};

/** Limits far above any real model, so that a hostile config costs nothing. */
const maxSize = 2 ** 24;
const maxLayers = 1024;

const withFallback = <T>(field: Field<T>, fallback: T | undefined): Field<T> =>
  fallback === undefined ? field : { ...field, fallback };

/** A whole number from 1 on. */
export function size(fallback?: number, max: number = maxSize): Field<number> {
  return withFallback(
    {
      parse: (value) =>
        Number.isSafeInteger(value) && Number(value) >= 1 && Number(value) <= max ? Number(value) : undefined,
      expects: `a whole number from 1 to ${max}`,
    },
    fallback,
  );
}

/** A number of layers. */
export const layerCount = (fallback?: number): Field<number> => size(fallback, maxLayers);

/** A whole number from 1 on, or null. */
export function optionalSize(max: number = maxSize): Field<number | null> {
  return { ...size(undefined, max), fallback: null };
}

/** A finite number above 0. */
export function positive(fallback?: number): Field<number> {
  return withFallback(
    {
      parse: (value) =>
        typeof value === "number" && value > 0 && Number.isFinite(value) ? value : undefined,
      expects: "a number above 0",
    },
    fallback,
  );
}

/** A number above 0, or null. */
export const optionalPositive = (): Field<number | null> => ({ ...positive(), fallback: null });

export function probability(fallback: number): Field<number> {
  return {
    parse: (value) => (typeof value === "number" && value >= 0 && value < 1 ? value : undefined),
    expects: "a number from 0 to below 1",
    fallback,
  };
}

/** A probability, or null. */
export const optionalProbability: Field<number | null> = { ...probability(0), fallback: null };

export function flag(fallback: boolean): Field<boolean> {
  return {
    parse: (value) => (typeof value === "boolean" ? value : undefined),
    expects: "true or false",
    fallback,
  };
}

/** One of these texts. */
export function choice<T extends string>(choices: readonly T[], fallback?: T): Field<T> {
  return withFallback(
    {
      parse: (value) => choices.find((one) => one === value),
      expects: `one of ${choices.map((one) => JSON.stringify(one)).join(", ")}`,
    },
    fallback,
  );
}

/** A field with one supported value; others change the arithmetic. */
export function only<T extends string | number | boolean>(value: T): Field<T> {
  return {
    parse: (found) => (found === value ? value : undefined),
    expects: `${JSON.stringify(value)}: Holdfast has no other form of this model`,
    fallback: value,
  };
}

/** An object, or null. */
export const optionalObject: Field<ModelConfig | null> = {
  parse: (value) => (isObject(value) ? value : undefined),
  expects: "an object",
  fallback: null,
};

/** A list of texts, or null. */
export const optionalTexts: Field<readonly string[] | null> = {
  parse: (value) =>
    Array.isArray(value) && value.length <= maxLayers && value.every((one) => typeof one === "string")
      ? value
      : undefined,
  expects: "a list of texts",
  fallback: null,
};

/** A field without effect on the arithmetic. */
export const harmless: Field<undefined> = {
  parse: () => undefined,
  expects: "anything",
  fallback: undefined,
};

/** Fields that any config may have, without effect on the arithmetic of logits, losses and gradients. */
export const commonFields = Object.fromEntries(
  [
    ...[
      "model_type",
      "architectures",
      "_name_or_path",
      "name_or_path",
      "transformers_version",
      "torch_dtype",
      "dtype",
    ],
    ...["bos_token_id", "eos_token_id", "pad_token_id", "sep_token_id", "cls_token_id", "mask_token_id"],
    ...["unk_token_id", "decoder_start_token_id", "forced_bos_token_id", "forced_eos_token_id"],
    ...["use_cache", "return_dict", "return_dict_in_generate", "output_attentions", "output_hidden_states"],
    ...["output_scores", "output_past", "torchscript", "gradient_checkpointing", "tokenizer_class", "prefix"],
    ...["initializer_range", "initializer_factor", "task_specific_params", "finetuning_task", "problem_type"],
    ...[
      "id2label",
      "label2id",
      "num_labels",
      "_num_labels",
      "chunk_size_feed_forward",
      "_attn_implementation",
    ],
    ...["_attn_implementation_autoset", "attn_implementation", "use_bfloat16", "tf_legacy_loss", "license"],
    ...["is_llama_config", "transformers.js_config", "unsloth_fixed", "unsloth_version"],
    ...["is_decoder"],
    // Settings of generation, which older files have here.
    ...[
      "max_length",
      "min_length",
      "do_sample",
      "early_stopping",
      "num_beams",
      "num_beam_groups",
      "temperature",
    ],
    ...["top_k", "top_p", "typical_p", "repetition_penalty", "length_penalty", "no_repeat_ngram_size"],
    ...["encoder_no_repeat_ngram_size", "bad_words_ids", "num_return_sequences", "diversity_penalty"],
    ...[
      "remove_invalid_values",
      "exponential_decay_length_penalty",
      "suppress_tokens",
      "begin_suppress_tokens",
    ],
  ].map((name) => [name, harmless]),
) as Readonly<Record<string, Field<undefined>>>;

/** Fields of any config that must have one value. */
export const commonRules = {
  is_encoder_decoder: only(false),
  add_cross_attention: only(false),
  tie_encoder_decoder: only(false),
  cross_attention_hidden_size: { parse: () => undefined, expects: "null", fallback: null },
  pruned_heads: {
    parse: (value) => (isObject(value) && Object.keys(value).length === 0 ? null : undefined),
    expects: "empty: Holdfast has no pruned heads",
    fallback: null,
  },
} as const satisfies FieldTable;

export interface ReadFieldsOptions {
  /** Unknown fields that are ignored. */
  readonly allowUnknown?: readonly string[];
  /** Precedes the names of fields in errors, such as "rope_scaling.". */
  readonly path?: string;
}

/** Reads the fields of a table. Rejects an unknown field, a missing one, and an unsupported value, by name. */
export function readFields<Table extends FieldTable>(
  model: string,
  table: Table,
  config: ModelConfig,
  { allowUnknown = [], path = "" }: ReadFieldsOptions = {},
): FieldValues<Table> {
  const known = (name: string): boolean =>
    Object.hasOwn(table, name) || (path === "" && Object.hasOwn(commonFields, name));
  const unknown = Object.keys(config).filter((name) => !known(name) && !allowUnknown.includes(name));
  if (unknown.length > 0) {
    const names = unknown.slice(0, 8).map((name) => quote(`${path}${name}`));
    throw badConfig(
      model,
      `unknown ${unknown.length > 1 ? "fields" : "field"} ${names.join(", ")}${unknown.length > 8 ? ", …" : ""}, which may change the ` +
        `arithmetic. If not, pass allowUnknown: [${unknown.slice(0, 8).map(quote).join(", ")}]`,
      { fields: names.join(", ") },
    );
  }
  const values = Object.entries(table).map(([name, field]) => {
    const value = Object.hasOwn(config, name) ? config[name] : undefined;
    return [name, readValue(model, `${path}${name}`, field, value)];
  });
  return Object.fromEntries(values) as FieldValues<Table>;
}

function readValue<T>(model: string, name: string, field: Field<T>, value: unknown): T | undefined {
  if (value === undefined || value === null) {
    if ("fallback" in field) return field.fallback;
    throw badConfig(model, `the field ${quote(name)} is missing; it must be ${field.expects}`, {
      field: name,
    });
  }
  const parsed = field.parse(value);
  if (parsed !== undefined || field === (harmless as Field<unknown>)) return parsed;
  const found = typeof value === "object" ? (Array.isArray(value) ? "a list" : "an object") : quote(value);
  throw badConfig(model, `${quote(name)} is ${found}; it must be ${field.expects}`, { field: name });
}

/** An error about a config. */
export function badConfig(
  model: string,
  problem: string,
  numbers: Readonly<Record<string, string | number>> = {},
): HoldfastError {
  return new HoldfastError("BAD_ARGUMENT", `The config of ${model}: ${problem}.`, { numbers });
}

export function isObject(value: unknown): value is ModelConfig {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** Rejects sizes that do not divide. */
export function requireDivides(
  model: string,
  size: number,
  name: string,
  divisor: number,
  divisorName: string,
): void {
  if (size % divisor === 0) return;
  throw badConfig(model, `${name} is ${size}, which is no multiple of ${divisorName}, ${divisor}`, {
    size,
    divisor,
  });
}
