/** PretrainedModel: the base of models that have a config, and folders of weights, as Hugging Face defines them. */

import { Module } from "../nn/index.js";
import type { ModelConfig } from "./configs/fields.js";
import type { HubLayout } from "./hub-layout.js";

/**
 * A model with a Hugging Face config.
 *
 * @example
 * ```ts
 * import { modelFromConfig, models } from "holdfast";
 * const sizes = { vocab_size: 20, n_positions: 8, n_embd: 8, n_layer: 1, n_head: 2 };
 * const model = modelFromConfig({ model_type: "gpt2", ...sizes });
 * console.log(model instanceof models.PretrainedModel, model.config["n_embd"]); // → true 8
 * ```
 */
export abstract class PretrainedModel extends Module {
  /** Private, because fields of modules are searched for modules: a config may have many values. */
  readonly #config: ModelConfig;
  /**
   * The names of its parameters in files.
   *
   * @internal
   */
  abstract readonly hubLayout: HubLayout;

  constructor(config: ModelConfig) {
    super();
    this.#config = config;
  }

  /**
   * The config that it was made from.
   *
   * @example
   * ```ts
   * import { modelFromConfig } from "holdfast";
   * const sizes = { vocab_size: 20, n_positions: 8, n_embd: 8, n_layer: 1, n_head: 2 };
   * console.log(modelFromConfig({ model_type: "gpt2", ...sizes }).config["n_layer"]); // → 1
   * ```
   */
  get config(): ModelConfig {
    return this.#config;
  }
}
