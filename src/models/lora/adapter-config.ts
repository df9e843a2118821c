/** adapter_config.json, as PEFT reads and writes it. A file is untrusted: a field that changes the arithmetic and is not known is rejected by name. */

import { quote } from "../../data/index.js";
import { HoldfastError } from "../../errors/index.js";
import type { Module } from "../../nn/index.js";
import {
  badConfig,
  type Field,
  flag,
  harmless,
  type ModelConfig,
  only,
  optionalObject,
  optionalTexts,
  positive,
  probability,
  readFields,
  size,
} from "../configs/fields.js";
import { LanguageModel } from "../language-model.js";
import { PretrainedModel } from "../pretrained-model.js";
import type { LoraAdapter, LoraSizes } from "./adapter.js";
import { maxRank } from "./apply.js";
import { type NamedModule, shortNames } from "./linear-layers.js";

type AdaptedLayer = NamedModule<Parameters<LoraAdapter["forward"]>[1]> & { readonly adapter: LoraAdapter };

/** A list of names, one pattern, or null. */
const targets: Field<readonly string[] | string | null> = {
  parse: (value) => (typeof value === "string" ? value : optionalTexts.parse(value)),
  expects: "a list of names, or a text",
  fallback: null,
};

const table = {
  peft_type: only("LORA"),
  r: size(8, maxRank),
  lora_alpha: positive(8),
  lora_dropout: probability(0),
  use_rslora: flag(false),
  rank_pattern: optionalObject,
  alpha_pattern: optionalObject,
  target_modules: targets,
  exclude_modules: targets,
  layers_to_transform: { parse: (value) => value, expects: "numbers", fallback: null } as Field<unknown>,
  modules_to_save: optionalTexts,
  bias: only("none"),
  use_dora: only(false),
  use_qalora: only(false),
  lora_bias: only(false),
  fan_in_fan_out: flag(false),
  // How A and B started. The principal values of pissa and the like are in the base model, which then is another one.
  init_lora_weights: {
    parse: (value) => (typeof value === "boolean" || value === "gaussian" ? value : undefined),
    expects: 'true, false or "gaussian": others change the base model',
    fallback: true,
  } as Field<boolean | string>,
  ...Object.fromEntries(
    [
      ...[
        "auto_mapping",
        "base_model_name_or_path",
        "revision",
        "inference_mode",
        "peft_version",
        "task_type",
      ],
      ...["layers_pattern", "megatron_core", "qalora_group_size", "loftq_config", "runtime_config"],
    ].map((name) => [name, harmless]),
  ),
};

/** An adapter's config. */
export interface AdapterConfig {
  readonly targets: readonly string[] | string | null;
  /** True if the targets are all layers with these names. */
  readonly namesAll: boolean;
  readonly modulesToSave: readonly string[];
  /** The sizes of the layer with a path in Hugging Face's model. */
  sizesOf(hubPath: string): LoraSizes;
}

/** In errors. */
const subject = "a LoRA adapter";

/** Reads the object of an adapter_config.json. */
export function readAdapterConfig(config: ModelConfig, allowUnknown: readonly string[]): AdapterConfig {
  // Newer versions of PEFT write more fields. Empty ones have no effect.
  const used = Object.entries(config).filter(
    ([name, value]) => Object.hasOwn(table, name) || !isEmpty(value),
  );
  const fields = readFields(subject, table, Object.fromEntries(used), { allowUnknown });
  const ranks = patternsOf("rank_pattern", fields.rank_pattern, size(undefined, maxRank));
  const alphas = patternsOf("alpha_pattern", fields.alpha_pattern, positive());
  return {
    targets: fields.target_modules,
    namesAll: fields.exclude_modules === null && fields.layers_to_transform === null,
    modulesToSave: fields.modules_to_save ?? [],
    sizesOf: (hubPath) => ({
      rank: valueFor(ranks, hubPath) ?? fields.r,
      alpha: valueFor(alphas, hubPath) ?? fields.lora_alpha,
      dropout: fields.lora_dropout,
      useRslora: fields.use_rslora,
    }),
  };
}

function isEmpty(value: unknown): boolean {
  if (value === null || value === false) return true;
  return typeof value === "object" && Object.keys(value).length === 0;
}

/** Numbers by names, which are ends of paths. The first one that fits a path counts. */
type Patterns = ReadonlyMap<string, { readonly order: number; readonly value: number }>;

/** A mapping from ends of paths to numbers. PEFT allows regular expressions; names alone are accepted here. */
function patternsOf(field: string, mapping: ModelConfig | null, value: Field<number>): Patterns {
  const patterns = new Map<string, { readonly order: number; readonly value: number }>();
  for (const [order, [pattern, given]] of Object.entries(mapping ?? {}).entries()) {
    const parsed = value.parse(given);
    if (!/^\^?[\w.]{1,200}$/.test(pattern) || parsed === undefined)
      throw badConfig(
        subject,
        `${field} maps ${quote(pattern)} to ${quote(String(given))}; it must map ends of paths, such as "self_attn.q_proj", to ${value.expects}`,
        { field },
      );
    const name = pattern.replace("^", "");
    if (!patterns.has(name)) patterns.set(name, { order, value: parsed });
  }
  return patterns;
}

function valueFor(patterns: Patterns, hubPath: string): number | undefined {
  const parts = hubPath.split(".");
  const fitting = parts.flatMap((_, first) => patterns.get(parts.slice(first).join(".")) ?? []);
  return fitting.sort((a, b) => a.order - b.order)[0]?.value;
}

/** The config of adapters, with the fields of PEFT that all of its versions know. */
export function adapterConfigOf(
  model: Module,
  layers: readonly AdaptedLayer[],
  saved: readonly NamedModule[],
): ModelConfig {
  const [first] = layers;
  if (!first) return {};
  const { sizes } = first.adapter;
  const differing = layers.find(
    ({ adapter }) => adapter.sizes.dropout !== sizes.dropout || adapter.sizes.useRslora !== sizes.useRslora,
  );
  if (differing)
    throw new HoldfastError(
      "BAD_STATE",
      `saveLora: ${first.path} and ${differing.path} differ in dropout or useRslora; a file has one of each.`,
    );
  const hub = model instanceof PretrainedModel ? model : undefined;
  return {
    alpha_pattern: patternOf(layers, ({ alpha }) => alpha),
    auto_mapping: null,
    base_model_name_or_path: hub ? baseNameOf(hub) : null,
    bias: "none",
    fan_in_fan_out: hub !== undefined && hub.hubLayout.transposed.length > 0,
    inference_mode: true,
    init_lora_weights: true,
    layers_pattern: null,
    layers_to_transform: null,
    lora_alpha: sizes.alpha,
    lora_dropout: sizes.dropout,
    modules_to_save: saved.length > 0 ? saved.map(({ hubPath }) => hubPath) : null,
    peft_type: "LORA",
    r: sizes.rank,
    rank_pattern: patternOf(layers, ({ rank }) => rank),
    revision: null,
    target_modules: shortNames(model, layers),
    task_type: model instanceof LanguageModel ? "CAUSAL_LM" : null,
    use_dora: false,
    use_rslora: sizes.useRslora,
  };
}

function baseNameOf({ config }: PretrainedModel): string | null {
  const name = config["_name_or_path"];
  return typeof name === "string" && name !== "" ? name : null;
}

/** The numbers of layers that differ from the first one's. */
function patternOf(
  layers: readonly AdaptedLayer[],
  read: (sizes: LoraSizes) => number,
): Record<string, number> {
  const [first] = layers;
  const entries = layers.map(({ hubPath, adapter }) => [hubPath, read(adapter.sizes)] as const);
  return Object.fromEntries(entries.filter(([, value]) => first && value !== read(first.adapter.sizes)));
}
