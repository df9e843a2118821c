/** The cases of test/oracle/models.json and transformers.json: models from configs, with weights of their names, and their calls. */

import assert from "node:assert/strict";
import { type Device, modelFromConfig, models, type Tensor, tensor } from "holdfast";
import { hubName, isTransposed } from "../../src/models/hub-layout.js";
import { hubNumbers, hubWeight } from "./hub-weights.js";
import { readRepositoryFile } from "./repository.js";

export interface ModelCase {
  readonly name: string;
  readonly config: models.ModelConfig;
  readonly logits: readonly number[];
  /** Of the same model in bf16. */
  readonly bf16Logits?: readonly number[];
  /** Of each parameter by its name in files: the norm of the gradient, and its product with fixed numbers. */
  readonly gradients: Readonly<Record<string, readonly [number, number]>>;
  /** Of ten steps of AdamW. */
  readonly losses: readonly number[];
  /** The most likely tokens after the prompt, before these steps. */
  readonly greedy?: readonly number[];
}

export interface ModelInputs {
  readonly ids: number[][];
  readonly labels: number[][];
  readonly maskedLabels: number[][];
  readonly classes: number[];
  readonly attentionMask: number[][];
  readonly tokenTypes: number[][];
  readonly prompt: readonly number[];
  readonly learningRate: number;
}

interface ModelCases {
  readonly inputs: ModelInputs;
  readonly cases: readonly ModelCase[];
}

export function readModelCases(file: "models.json" | "transformers.json"): ModelCases {
  return JSON.parse(readRepositoryFile(`test/oracle/${file}`)) as ModelCases;
}

/** The model of a case with the weights of its names. */
export function modelOf(
  device: Device,
  { config }: ModelCase,
  dtype: "bf16" | "f32" | "f64",
): models.PretrainedModel {
  const model = modelFromConfig(config).to(device, dtype);
  for (const [path, parameter] of model.namedParameters()) {
    const [rows = 1, columns = 1] = parameter.shape;
    const name = hubName(model.hubLayout, path);
    const isStoredTransposed = isTransposed(model.hubLayout, path);
    const values = hubWeight(name, isStoredTransposed ? [columns, rows] : parameter.shape);
    parameter.initialize(() => (isStoredTransposed ? transposed(values, columns, rows) : values));
  }
  return model;
}

function transposed(values: Float64Array, rows: number, columns: number): Float64Array {
  return Float64Array.from(values, (_, at) => values[(at % rows) * columns + Math.floor(at / rows)]!);
}

export interface Calls {
  logits(): Tensor;
  loss(): Tensor;
}

/** The calls of a model with the inputs of its case. */
export function callsOf(model: models.PretrainedModel, inputs: ModelInputs): Calls {
  const { device, dtype } = model.parameters()[0]!;
  const whole = (values: number[] | number[][]): Tensor => tensor(values, { dtype: "i32", device });
  const ids = whole(inputs.ids);
  if (model instanceof models.LanguageModel)
    return { logits: () => model.forward(ids), loss: () => model.loss(ids, whole(inputs.labels)) };
  if (model instanceof models.Bert) {
    const options = { attentionMask: whole(inputs.attentionMask), tokenTypes: whole(inputs.tokenTypes) };
    const labels = whole(model.cls ? inputs.maskedLabels : inputs.classes);
    return { logits: () => model.forward(ids, options), loss: () => model.loss(ids, labels, options) };
  }
  assert.ok(model instanceof models.Vit);
  const pixels = hubNumbers("images", 2 * 3 * 8 * 8);
  const images = tensor(pixels, { dtype, device }).reshape([2, 3, 8, 8]);
  return { logits: () => model.forward(images), loss: () => model.loss(images, whole(inputs.classes)) };
}
