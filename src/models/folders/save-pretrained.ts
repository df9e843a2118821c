/** savePretrained: writes a model to a folder as Hugging Face lays it out, with its names and layouts. */

import { readdirSync, rmSync } from "node:fs";
import { join } from "node:path";
import { layOutFile, makeFolder, type PreparedWrite, prepareWrite, withFileError } from "../../data/index.js";
import { HoldfastError } from "../../errors/index.js";
import { type Dtype, dtypes } from "../../ir/index.js";
import type { Parameter } from "../../nn/index.js";
import { GiB } from "../../units/index.js";
import type { ModelConfig } from "../configs/fields.js";
import { hubName, isTransposed } from "../hub-layout.js";
import { adaptedLayers } from "../lora/linear-layers.js";
import { PretrainedModel } from "../pretrained-model.js";
import { indexFile, wholeFile } from "./model-files.js";
import { type ParameterToRead, readParameter } from "./read-parameter.js";
import { pieceBytes } from "./write-parameter.js";

/** Options of `savePretrained`. */
export interface SavePretrainedOptions {
  /** The dtype of the weights in files. Default: that of the parameters. */
  readonly dtype?: Extract<Dtype, "f64" | "f32" | "f16" | "bf16">;
  /** A model with more bytes of weights is written as several files. Default: 5 GiB. */
  readonly maxShardBytes?: number;
}

/** A tensor of a file, and the parameter that it is made from. */
interface TensorToSave extends ParameterToRead {
  readonly name: string;
  readonly shape: readonly number[];
}

const hubDtypes: Partial<Record<Dtype, string>> = {
  f64: "float64",
  f32: "float32",
  f16: "float16",
  bf16: "bfloat16",
};
const metadata = new Map([["format", "pt"]]);

/**
 * Saves a model's config and weights. All files are written under temporary names first, then renamed. If the program is killed between
 * two renames, the folder lacks its index, and `loadPretrained` rejects it: it never has weights of two models. Other files of the folder,
 * such as those of a tokenizer, stay.
 *
 * @example
 * ```ts
 * import { mkdtempSync, readdirSync } from "node:fs";
 * import { tmpdir } from "node:os";
 * import { join } from "node:path";
 * import { device, modelFromConfig, savePretrained } from "holdfast";
 * const cpu = await device("cpu");
 * const sizes = { vocab_size: 20, n_positions: 8, n_embd: 8, n_layer: 1, n_head: 2 };
 * const model = modelFromConfig({ model_type: "gpt2", ...sizes }).to(cpu);
 * const folder = join(mkdtempSync(join(tmpdir(), "models-")), "gpt2");
 * savePretrained(model, folder);
 * console.log(readdirSync(folder).join()); // → config.json,model.safetensors
 * cpu.close();
 * ```
 */
export function savePretrained(
  model: PretrainedModel,
  folder: string,
  options: SavePretrainedOptions = {},
): void {
  const { maxShardBytes = 5 * GiB } = options;
  if (!(model instanceof PretrainedModel))
    throw new HoldfastError(
      "BAD_ARGUMENT",
      "savePretrained takes a model of modelFromConfig or loadPretrained, and a folder.",
    );
  if (!(maxShardBytes >= 1))
    throw new HoldfastError(
      "BAD_ARGUMENT",
      `maxShardBytes is ${maxShardBytes}; pass a number of bytes, 1 or more.`,
    );
  const tensors = tensorsOf(model, options);
  const shards = splitShards(tensors, maxShardBytes);
  const names = shards.map((_, index) => shardName(index, shards.length));
  makeFolder(folder);
  const prepared: PreparedWrite[] = [];
  const write = (name: string, content: string | Iterable<Uint8Array>): void => {
    prepared.push(prepareWrite(join(folder, name), content));
  };
  try {
    write("config.json", json(configOf(model, tensors)));
    for (const [index, shard] of shards.entries()) write(names[index] ?? wholeFile, chunksOf(shard));
    if (shards.length > 1) write(indexFile, json(indexOf(shards, names)));
    // Without an index or a whole file, a folder has no weights: no moment has weights of two models.
    const isReplacedInPlace = shards.length === 1;
    removeOld(folder, (name) => name === indexFile || (!isReplacedInPlace && name === wholeFile));
    for (const file of prepared) file.commit();
    removeOld(folder, (name) => /^model-\d{5}-of-\d{5}\.safetensors$/.test(name) && !names.includes(name));
  } finally {
    for (const file of prepared) file.discard();
  }
}

function tensorsOf(model: PretrainedModel, { dtype }: SavePretrainedOptions): readonly TensorToSave[] {
  const adapters = new Set(mergedAdapters(model));
  const weights = [...model.namedParameters()].filter(([, parameter]) => !adapters.has(parameter));
  return weights.map(([path, parameter]) => {
    const transposed = isTransposed(model.hubLayout, path);
    return {
      name: hubName(model.hubLayout, path),
      dtype: dtype ?? parameter.dtype,
      shape: transposed ? parameter.shape.toReversed() : parameter.shape,
      ...{ parameter, isTransposed: transposed },
    };
  });
}

/** The parameters of adapters, whose products are in the weights. */
function mergedAdapters(model: PretrainedModel): readonly Parameter[] {
  const layers = adaptedLayers(model);
  if (layers.every(({ adapter }) => adapter.isMerged))
    return layers.flatMap(({ adapter }) => adapter.parameters());
  throw new HoldfastError(
    "BAD_STATE",
    "savePretrained: the model has LoRA adapters that are not in its weights. Call mergeLora(model) first, or save the adapters with saveLora.",
  );
}

const bytesOf = ({ parameter, dtype }: TensorToSave): number => parameter.numel * dtypes[dtype].bytes;

/** Splits tensors in order. A tensor that is larger than a shard has one of its own. */
function splitShards(
  tensors: readonly TensorToSave[],
  maxBytes: number,
): readonly (readonly TensorToSave[])[] {
  const shards: TensorToSave[][] = [];
  let size = 0;
  for (const tensor of tensors) {
    if (shards.length === 0 || size + bytesOf(tensor) > maxBytes) {
      shards.push([]);
      size = 0;
    }
    shards.at(-1)?.push(tensor);
    size += bytesOf(tensor);
  }
  return shards;
}

function shardName(index: number, count: number): string {
  const digits = (value: number): string => String(value).padStart(5, "0");
  return count === 1 ? wholeFile : `model-${digits(index + 1)}-of-${digits(count)}.safetensors`;
}

function indexOf(shards: readonly (readonly TensorToSave[])[], names: readonly string[]): object {
  const entries = shards.flatMap((shard, index) => shard.map(({ name }) => [name, names[index]] as const));
  return {
    metadata: { total_size: shards.flat().reduce((sum, tensor) => sum + bytesOf(tensor), 0) },
    weight_map: Object.fromEntries(entries.sort(([a], [b]) => (a < b ? -1 : 1))),
  };
}

/** The config with the dtype of the files. */
function configOf({ config }: PretrainedModel, tensors: readonly TensorToSave[]): ModelConfig {
  const dtypesOfFiles = new Set(tensors.map(({ dtype }) => dtype));
  const [dtype = "f32"] = dtypesOfFiles;
  const { dtype: _, ...others } = config;
  return dtypesOfFiles.size === 1 ? { ...others, torch_dtype: hubDtypes[dtype] } : others;
}

const json = (value: object): string => `${JSON.stringify(value, undefined, 2)}\n`;

/** The bytes of a file, a few megabytes at a time. */
function* chunksOf(tensors: readonly TensorToSave[]): Generator<Uint8Array> {
  const { beginning, sorted } = layOutFile(tensors, metadata);
  yield beginning;
  for (const tensor of sorted) yield* readParameter(tensor, pieceBytes);
}

function removeOld(folder: string, isOld: (name: string) => boolean): void {
  withFileError(`${folder} can't be cleaned up`, folder, () => {
    for (const name of readdirSync(folder)) if (isOld(name)) rmSync(join(folder, name), { force: true });
  });
}
