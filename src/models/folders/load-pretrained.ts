/** loadPretrained: a model with the weights of a local folder, as Hugging Face lays it out. Nothing is downloaded. */

import { join } from "node:path";
import { HoldfastError } from "../../errors/index.js";
import { type Dtype, dtypes } from "../../ir/index.js";
import { init } from "../../nn/index.js";
import { Device } from "../../tensor/index.js";
import type { ModelConfig } from "../configs/fields.js";
import { type ModelFromConfigOptions, modelFromConfig } from "../model-from-config.js";
import type { PretrainedModel } from "../pretrained-model.js";
import { type MatchedTensor, type MatchOptions, matchTensors } from "./match-tensors.js";
import { openModelFiles, readJsonObject } from "./model-files.js";
import { nameFile } from "./name-file.js";
import { pieceBytes, writeParameter } from "./write-parameter.js";

/** Options of `loadPretrained`. */
export interface LoadPretrainedOptions extends ModelFromConfigOptions, MatchOptions {
  readonly device: Device;
  /** The dtype of the weights. Default: f32, or as stored if `frozen`. */
  readonly dtype?: Extract<Dtype, "f64" | "f32" | "f16" | "bf16">;
  /** Freezes all parameters: they get no gradients, and no memory for them. */
  readonly frozen?: boolean;
  /** Fields that replace those of config.json, such as another head: `{ architectures: ["BertForSequenceClassification"] }`. */
  readonly config?: ModelConfig;
  /** The class that the model must have, such as `models.LanguageModel`. The result then has its type. Default: any. */
  readonly modelClass?: ModelClass<PretrainedModel>;
}

/** A class of models, which may be abstract. */
type ModelClass<Model> = abstract new (...given: never[]) => Model;

/**
 * Loads a model from a folder with a `config.json` and the weights: `model.safetensors`, or shards with
 * `model.safetensors.index.json`. The model is in evaluation mode; call `train()` to train it. The host holds a few megabytes of the
 * weights at a time. A folder that does not fit its config is rejected before memory is allocated.
 *
 * @example
 * ```ts
 * import { mkdtempSync } from "node:fs";
 * import { tmpdir } from "node:os";
 * import { join } from "node:path";
 * import { device, loadPretrained, modelFromConfig, models, savePretrained } from "holdfast";
 * const cpu = await device("cpu");
 * const sizes = { vocab_size: 20, n_positions: 8, n_embd: 8, n_layer: 1, n_head: 2 };
 * const model = modelFromConfig({ model_type: "gpt2", ...sizes }).to(cpu);
 * const folder = join(mkdtempSync(join(tmpdir(), "models-")), "gpt2");
 * savePretrained(model, folder, { dtype: "bf16" });
 * const base = loadPretrained(folder, { device: cpu, frozen: true, modelClass: models.Gpt2 });
 * console.log(base.parameters().every(({ dtype, requiresGrad }) => dtype === "bf16" && !requiresGrad)); // → true
 * cpu.close();
 * ```
 */
export function loadPretrained<Model extends PretrainedModel>(
  folder: string,
  options: LoadPretrainedOptions & { readonly modelClass: ModelClass<Model> },
): Model;
export function loadPretrained(folder: string, options: LoadPretrainedOptions): PretrainedModel;
export function loadPretrained(folder: string, options: LoadPretrainedOptions): PretrainedModel {
  const { device, frozen = false, modelClass } = options;
  if (!(device instanceof Device)) {
    throw new HoldfastError(
      "BAD_ARGUMENT",
      'loadPretrained takes a device: loadPretrained(folder, { device: await device("cpu") }).',
    );
  }
  const path = join(folder, "config.json");
  const config: ModelConfig = { ...readJsonObject(path), ...options.config };
  const model = nameFile(path, () => modelFromConfig(config, options));
  const { name } = model.constructor;
  if (modelClass && !(model instanceof modelClass)) {
    throw new HoldfastError(
      "BAD_ARGUMENT",
      `${path} describes a model of the class ${name}, and modelClass is ${modelClass.name}. Pass another class or folder.`,
    );
  }
  const files = openModelFiles(folder);
  try {
    const matched = matchTensors(folder, model, files.tensors, options);
    for (const { parameter } of matched) parameter.initialize(init.zeros());
    model.requiresGrad_(!frozen).to(device, options.dtype ?? (frozen ? storedDtype(matched) : "f32"));
    const scratch = new Uint8Array(pieceBytes);
    for (const match of matched) writeParameter(match, scratch);
  } finally {
    files.close();
  }
  return model.eval();
}

/** The dtype that represents all stored values. */
function storedDtype(matched: readonly MatchedTensor[]): Dtype {
  const stored = new Set(matched.map(({ dtype }) => dtype));
  const [only = "f32"] = stored;
  if (stored.size <= 1) return only;
  return [...stored].some((dtype) => dtypes[dtype].bytes === 8) ? "f64" : "f32";
}
