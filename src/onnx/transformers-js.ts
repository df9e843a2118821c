/**
 * exportTransformersJs: a folder that transformers.js loads. Inputs and results have the names that it feeds and reads. A decoder is one
 * graph with a cache, which is empty in the first call. transformers.js makes that empty cache from the names of its axes: "batch_size" is
 * the number of texts, and every other name is 0.
 */

import { join } from "node:path";
import { makeFolder, writeAtomically } from "../data/index.js";
import { checkOptions, HoldfastError } from "../errors/index.js";
import type { Dtype } from "../ir/index.js";
import {
  Bert,
  LanguageModel,
  type LayerPast,
  type ModelConfig,
  PretrainedModel,
  Vit,
} from "../models/index.js";
import { type Device, type Tensor, zeros } from "../tensor/index.js";
import { saveTokenizer, type Tokenizer } from "../text/index.js";
import { type OnnxExport, writeOnnx } from "./export.js";
import type { DynamicAxes } from "./sizes.js";

/** Options of `exportTransformersJs`. */
export interface ExportTransformersJsOptions {
  /** The tokenizer of a model of text. Pipelines need it. */
  readonly tokenizer?: Tokenizer;
  /** Fields of `preprocessor_config.json` that replace those of Hugging Face's ViT: sizes of the config, and numbers from −1 to 1. */
  readonly preprocessorConfig?: Readonly<Record<string, unknown>>;
  /** If the weights take more bytes, they are in a second file, `onnx/model.onnx_data`. Default and maximum: "1900MiB". */
  readonly externalDataAbove?: string;
}

/** A forward pass with the names of transformers.js. */
interface NamedPass {
  readonly inputs: Readonly<Record<string, Tensor>>;
  readonly axes: DynamicAxes;
  run(inputs: Readonly<Record<string, Tensor>>): unknown;
}

/**
 * Writes a model of `modelFromConfig` or `loadPretrained` as a folder for transformers.js, which runs it in Node and in browsers:
 * `onnx/model.onnx`, `config.json`, and the files of the tokenizer or the image processor. Put the folder below `env.localModelPath`, or
 * upload it.
 *
 * @example
 * ```ts
 * import { mkdtempSync, readdirSync } from "node:fs";
 * import { tmpdir } from "node:os";
 * import { join } from "node:path";
 * import { ByteTokenizer, device, exportTransformersJs, modelFromConfig } from "holdfast";
 * const cpu = await device("cpu");
 * const sizes = { vocab_size: 257, n_positions: 16, n_embd: 8, n_layer: 1, n_head: 2 };
 * const model = modelFromConfig({ model_type: "gpt2", ...sizes }).to(cpu);
 * const folder = join(mkdtempSync(join(tmpdir(), "models-")), "gpt2");
 * const tokenizer = new ByteTokenizer({ eosToken: "<|end|>" });
 * const { inputs } = exportTransformersJs(model, folder, { tokenizer });
 * console.log(inputs.map(({ name }) => name).slice(2)); // → [ 'position_ids', 'past_key_values.0.key', 'past_key_values.0.value' ]
 * console.log(readdirSync(folder).join()); // → config.json,generation_config.json,onnx,tokenizer.json,tokenizer_config.json
 * cpu.close();
 * ```
 */
export function exportTransformersJs(
  model: PretrainedModel,
  folder: string,
  options: ExportTransformersJsOptions = {},
): OnnxExport {
  const { tokenizer, preprocessorConfig, ...others } = checkOptions("exportTransformersJs", options, {
    ...{ tokenizer: true, preprocessorConfig: true, externalDataAbove: true },
  });
  if (!(model instanceof PretrainedModel))
    throw new HoldfastError(
      "BAD_ARGUMENT",
      "exportTransformersJs takes a model of modelFromConfig or loadPretrained, and a folder.",
    );
  const { inputs, axes, run } = passOf(model);
  const onnx = join(folder, "onnx");
  makeFolder(onnx);
  const names = Object.keys(inputs);
  const byName = (tensors: readonly Tensor[]): Record<string, Tensor> =>
    Object.fromEntries(names.flatMap((name, index) => (tensors[index] ? [[name, tensors[index]]] : [])));
  const written = writeOnnx(
    { module: model, run: (...tensors) => run(byName(tensors)) },
    join(onnx, "model.onnx"),
    inputs,
    { dynamicAxes: axes, name: String(model.config["model_type"]), ...others },
  );
  const write = (name: string, content: object): void =>
    writeAtomically(join(folder, name), [
      new TextEncoder().encode(`${JSON.stringify(content, undefined, 2)}\n`),
    ]);
  const settings = {
    // The file has one precision, whatever device runs it.
    dtype: "fp32",
    ...(written.files.length > 1 && { use_external_data_format: true }),
  };
  write("config.json", { ...model.config, "transformers.js_config": settings });
  if (model instanceof LanguageModel)
    write("generation_config.json", generationConfig(model.config, tokenizer));
  if (model instanceof Vit)
    write("preprocessor_config.json", { ...imageConfig(model), ...preprocessorConfig });
  if (tokenizer) {
    saveTokenizer(tokenizer, folder);
    write("tokenizer_config.json", tokenizerConfig(tokenizer));
  }
  return written;
}

function passOf(model: PretrainedModel): NamedPass {
  const [parameter] = model.parameters();
  if (!parameter)
    throw new HoldfastError("BAD_ARGUMENT", "exportTransformersJs: the model has no parameters.");
  const { device } = parameter;
  if (model instanceof LanguageModel) return decoderPass(model, device);
  if (model instanceof Bert) return bertPass(model, device);
  if (model instanceof Vit) return vitPass(model, device, parameter.dtype);
  throw new HoldfastError(
    "UNSUPPORTED",
    `exportTransformersJs has no names for the inputs of ${model.constructor.name}. Use exportOnnx.`,
  );
}

/** Sizes of the traced call. Any will do; different ones keep axes apart. */
const [batch, rows, columns] = [2, 4, 3];

const pastName = (layer: number, part: "key" | "value"): string => `past_key_values.${layer}.${part}`;

function decoderPass(model: LanguageModel, device: Device): NamedPass {
  const { layers, keyHeads, headWidth } = model.newCache({ batch: 1, maxLength: 1 }).sizes;
  const whole = (length: number): Tensor => zeros([batch, length], { dtype: "i64", device });
  const all = Array.from({ length: layers }, (_, layer) => layer);
  const pastNames = all.flatMap((layer) => [pastName(layer, "key"), pastName(layer, "value")]);
  const past = (): Tensor => zeros([batch, keyHeads, columns, headWidth], { device });
  const rowAxes = { 0: "batch_size", 1: "sequence_length" };
  return {
    inputs: {
      ...{ input_ids: whole(rows), attention_mask: whole(columns + rows), position_ids: whole(rows) },
      ...Object.fromEntries(pastNames.map((name) => [name, past()])),
    },
    axes: {
      ...{ input_ids: rowAxes, position_ids: rowAxes },
      attention_mask: { 0: "batch_size", 1: "past_sequence_length + sequence_length" },
      ...Object.fromEntries(pastNames.map((name) => [name, { 0: "batch_size", 2: "past_sequence_length" }])),
    },
    run: (given) => {
      const tensor = (name: string): Tensor => given[name] as Tensor;
      const result = model.forwardWithPast(tensor("input_ids"), {
        positions: tensor("position_ids"),
        attentionMask: tensor("attention_mask"),
        past: all.map((layer): LayerPast => {
          return { key: tensor(pastName(layer, "key")), value: tensor(pastName(layer, "value")) };
        }),
      });
      return { logits: result.logits.to("f32"), present: result.present };
    },
  };
}

function bertPass(model: Bert, device: Device): NamedPass {
  const names = ["input_ids", "attention_mask", "token_type_ids"];
  const whole = (): Tensor => zeros([batch, rows], { dtype: "i64", device });
  const result = model.cls || model.classifier ? "logits" : "last_hidden_state";
  return {
    inputs: Object.fromEntries(names.map((name) => [name, whole()])),
    axes: Object.fromEntries(names.map((name) => [name, { 0: "batch_size", 1: "sequence_length" }])),
    run: ({ input_ids: ids, attention_mask: attentionMask, token_type_ids: tokenTypes }) => {
      const options = { ...(attentionMask && { attentionMask }), ...(tokenTypes && { tokenTypes }) };
      return { [result]: model.forward(ids as Tensor, options).to("f32") };
    },
  };
}

function vitPass(model: Vit, device: Device, dtype: Dtype): NamedPass {
  const { channels, imageSize } = model.imageShape;
  const result = model.classifier ? "logits" : "last_hidden_state";
  return {
    inputs: { pixel_values: zeros([batch, channels, ...imageSize], { device }) },
    axes: { pixel_values: { 0: "batch_size" } },
    run: ({ pixel_values: pixels }) => ({
      [result]: model.forward((pixels as Tensor).to(dtype)).to("f32"),
    }),
  };
}

/** What ends a text, and other ids that generation needs. */
function generationConfig(config: ModelConfig, tokenizer: Tokenizer | undefined): object {
  const ids = {
    bos_token_id: tokenizer?.bosId,
    eos_token_id: tokenizer?.eosId,
    pad_token_id: tokenizer?.padId,
  };
  return Object.fromEntries(
    Object.entries(ids).flatMap(([name, id]) => {
      const found = config[name] ?? id;
      return found === undefined ? [] : [[name, found]];
    }),
  );
}

/** The image processor of ViT, as Hugging Face's models have it. */
function imageConfig(model: Vit): object {
  const { channels, imageSize } = model.imageShape;
  const each = (value: number): number[] => new Array<number>(channels).fill(value);
  return {
    image_processor_type: "ViTImageProcessor",
    ...{ do_resize: true, size: { height: imageSize[0], width: imageSize[1] }, resample: 2 },
    ...{ do_rescale: true, rescale_factor: 1 / 255 },
    ...{ do_normalize: true, image_mean: each(0.5), image_std: each(0.5) },
  };
}

/** transformers.js reads the chat template from this file only. */
function tokenizerConfig({ files }: Tokenizer): object {
  const text = (name: string): string | undefined => {
    const bytes = files.get(name);
    return bytes && new TextDecoder().decode(bytes);
  };
  const template = text("chat_template.jinja");
  const config = JSON.parse(
    text("tokenizer_config.json") ?? '{"tokenizer_class": "PreTrainedTokenizerFast"}',
  ) as object;
  return { ...config, ...(template !== undefined && { chat_template: template }) };
}
