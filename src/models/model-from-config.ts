/** modelFromConfig: the model that a config.json describes. */

import { quote } from "../data/index.js";
import { HoldfastError } from "../errors/index.js";
import { Bert } from "./bert.js";
import { readBertConfig, readVitConfig } from "./configs/encoders.js";
import { isObject, type ModelConfig } from "./configs/fields.js";
import { readGpt2Config } from "./configs/gpt2.js";
import { type LlamaType, llamaTypes, readLlamaConfig } from "./configs/llama.js";
import { Gpt2 } from "./gpt2.js";
import { Llama } from "./llama.js";
import type { PretrainedModel } from "./pretrained-model.js";
import { Vit } from "./vit.js";

/** Options of `modelFromConfig`. */
export interface ModelFromConfigOptions {
  /** Fields that Holdfast does not know and that do not change the arithmetic. */
  readonly allowUnknown?: readonly string[];
}

/** The class of a model type, if the type is known when the program is compiled. */
export type ModelOf<Type> = Type extends "gpt2"
  ? Gpt2
  : Type extends LlamaType
    ? Llama
    : Type extends "bert"
      ? Bert
      : Type extends "vit"
        ? Vit
        : PretrainedModel;

type MakeModel = (config: ModelConfig, options: ModelFromConfigOptions) => PretrainedModel;

const makers: ReadonlyMap<string, MakeModel> = new Map<string, MakeModel>([
  ["gpt2", (config, options) => new Gpt2(readGpt2Config(config, options), config)],
  ...llamaTypes.map((type): [string, MakeModel] => [
    type,
    (config, options) => new Llama(readLlamaConfig(type, config, options), config),
  ]),
  ["bert", (config, options) => new Bert(readBertConfig(config, options), config)],
  ["vit", (config, options) => new Vit(readVitConfig(config, options), config)],
]);

/**
 * A model with random weights, from the object of a Hugging Face config.json. Place it with `to`. Fields that Holdfast does not know, and
 * values that it does not support, are rejected by name.
 *
 * @example
 * ```ts
 * import { device, HoldfastError, modelFromConfig } from "holdfast";
 * const cpu = await device("cpu");
 * const sizes = { vocab_size: 20, n_positions: 8, n_embd: 8, n_layer: 1, n_head: 2 };
 * console.log(modelFromConfig({ model_type: "gpt2", ...sizes }).to(cpu).parameterCount); // → 1112
 * try {
 *   modelFromConfig({ model_type: "gpt2", ...sizes, attention_sinks: 4 });
 * } catch (error) {
 *   if (error instanceof HoldfastError) console.log(error.message.slice(0, 51)); // → The config of gpt2: unknown field "attention_sinks"
 * }
 * cpu.close();
 * ```
 */
export function modelFromConfig<const Config extends ModelConfig>(
  config: Config,
  options?: ModelFromConfigOptions,
): ModelOf<Config["model_type"]>;
export function modelFromConfig(config: ModelConfig, options: ModelFromConfigOptions = {}): PretrainedModel {
  if (!isObject(config)) {
    throw new HoldfastError(
      "BAD_ARGUMENT",
      "modelFromConfig takes the object of a config.json: JSON.parse its text first.",
    );
  }
  const type = Object.hasOwn(config, "model_type") ? config["model_type"] : undefined;
  const make = typeof type === "string" ? makers.get(type) : undefined;
  if (make) return make(config, options);
  const found = type === undefined ? "missing" : quote(String(type));
  throw new HoldfastError(
    "UNSUPPORTED",
    `model_type is ${found}; Holdfast has ${[...makers.keys()].join(", ")}.`,
    {
      numbers: { modelType: found },
    },
  );
}
