/**
 * The files of a model's weights: `model.safetensors`, or shards with an index. Everything in them is untrusted: names of shards lead
 * nowhere else, and the tensors of the shards are those of the index, each once.
 */

import { basename, join } from "node:path";
import {
  badData,
  isThere,
  type OpenSafetensors,
  openSafetensors,
  quote,
  type TensorInFile,
  withFileError,
} from "../../data/index.js";
import { readRegularFile } from "../../files/index.js";
import { type JsonLimits, parseJson } from "../../text/index.js";
import { MiB } from "../../units/index.js";
import { isObject, type ModelConfig } from "../configs/fields.js";

export const wholeFile = "model.safetensors";
export const indexFile = "model.safetensors.index.json";
const maxConfigBytes = MiB;
const configLimits: JsonLimits = { maxContainers: 20_000, maxValues: 200_000, maxDepth: 32 };
const maxIndexBytes = 16 * MiB;
const indexLimits: JsonLimits = { maxContainers: 1000, maxValues: 100_000, maxDepth: 16 };
const maxShards = 10_000;

/** A tensor of a folder, and the open file that has it. */
export interface FolderTensor {
  readonly tensor: TensorInFile;
  readonly file: OpenSafetensors;
}

/** The open files of a folder, and all their tensors by name. */
export interface ModelFiles {
  readonly tensors: ReadonlyMap<string, FolderTensor>;
  close(): void;
}

/** Reads the object of a config file. */
export function readJsonObject(path: string): ModelConfig {
  return readObject(path, maxConfigBytes, configLimits);
}

function readObject(path: string, maxBytes: number, limits: JsonLimits): ModelConfig {
  const bytes = withFileError(`${path} can't be read`, path, () => readRegularFile(path, maxBytes));
  return parseJson(bytes, path, limits).record();
}

/** Opens the files of a folder's weights. */
export function openModelFiles(folder: string): ModelFiles {
  const index = join(folder, indexFile);
  if (isThere(join(folder, wholeFile))) return openFiles([join(folder, wholeFile)]);
  if (isThere(index)) return openShards(folder, index);
  throw badData(
    folder,
    `the folder has neither ${wholeFile} nor ${indexFile}.`,
    "Pass the folder of a model with weights in safetensors files; convert others with the program that wrote them.",
  );
}

function openShards(folder: string, path: string): ModelFiles {
  const index = readObject(path, maxIndexBytes, indexLimits);
  const map = Object.hasOwn(index, "weight_map") ? index["weight_map"] : undefined;
  if (!isObject(map)) throw badData(path, "it has no weight_map.", "Download the file again.");
  const shardOf = new Map(Object.entries(map).map(([name, shard]) => [name, shardName(path, name, shard)]));
  const shards = [...new Set(shardOf.values())].sort();
  if (shards.length === 0 || shards.length > maxShards)
    throw badData(
      path,
      `it names ${shards.length} shards; there must be 1 to ${maxShards}.`,
      "Download the file again.",
    );
  const requireListed = (name: string, file: OpenSafetensors): void => {
    const shard = basename(file.path);
    const stated = shardOf.get(name);
    if (stated === shard) return;
    const where = stated === undefined ? "nowhere" : `in ${quote(stated)}`;
    throw badData(
      path,
      `tensor ${quote(name)} is in ${quote(shard)}, but the index has it ${where}.`,
      "Download the folder again.",
    );
  };
  const paths = shards.map((shard) => join(folder, shard));
  const files = openFiles(paths, requireListed);
  try {
    for (const [name, shard] of shardOf) {
      if (files.tensors.has(name)) continue;
      throw badData(path, `tensor ${quote(name)} is not in ${quote(shard)}.`, "Download the folder again.");
    }
  } catch (error) {
    files.close();
    throw error;
  }
  return files;
}

/** The name of a file in the same folder, and nothing else. */
function shardName(path: string, name: string, shard: unknown): string {
  if (typeof shard === "string" && /^[A-Za-z0-9_][\w.-]{0,200}\.safetensors$/.test(shard)) return shard;
  throw badData(
    path,
    `tensor ${quote(name)} is in the shard ${quote(shard)}; a shard is a file of the same folder with the ending .safetensors.`,
    "Download the file again, from a source that you trust.",
  );
}

/** `check` may reject a tensor of a file, before the next file is opened. */
function openFiles(
  paths: readonly string[],
  check: (name: string, file: OpenSafetensors) => void = () => {},
): ModelFiles {
  const files: OpenSafetensors[] = [];
  const close = (): void => {
    for (const file of files.splice(0)) file.close();
  };
  try {
    const tensors = new Map<string, FolderTensor>();
    for (const path of paths) {
      const file = openSafetensors(path);
      files.push(file);
      for (const [name, tensor] of file.tensors) {
        const other = tensors.get(name);
        if (other)
          throw badData(
            path,
            `tensor ${quote(name)} is also in ${basename(other.file.path)}.`,
            "Keep one of the two.",
          );
        check(name, file);
        tensors.set(name, { tensor, file });
      }
    }
    return { tensors, close };
  } catch (error) {
    close();
    throw error;
  }
}
