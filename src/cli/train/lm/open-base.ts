/** The model and the tokenizer that `holdfast train lm` starts from: a folder, or a config with random weights. */

import { createHash } from "node:crypto";
import { closeSync, readdirSync } from "node:fs";
import { join } from "node:path";
import { withFileError } from "../../../data/index.js";
import { HoldfastError } from "../../../errors/index.js";
import { openRegularFile, readRegularFile, readSpan } from "../../../files/index.js";
import {
  LanguageModel,
  loadPretrained,
  type ModelConfig,
  modelFromConfig,
  type PretrainedModel,
} from "../../../models/index.js";
import { type Device, manualSeed } from "../../../tensor/index.js";
import { ByteTokenizer, loadTokenizer, parseJson, type Tokenizer } from "../../../text/index.js";
import { MiB } from "../../../units/index.js";
import { baseDtypeOf, type LmOptions } from "./options.js";

/** What is known before a device is opened. */
export interface BaseFiles {
  readonly tokenizer: Tokenizer;
  /** Of the config and the weights of a folder, or of a config. */
  readonly checksum: string;
  /** The maximum number of positions, as the config says; undefined if it does not. */
  readonly maxLength: number | undefined;
  /** Loads the model, or makes it with random weights. */
  open(device: Device): LanguageModel;
}

const endToken = "<|endoftext|>";
const maxConfigBytes = MiB;
const configLimits = { maxContainers: 10_000, maxValues: 100_000, maxDepth: 32 };

export function openBase(options: LmOptions): BaseFiles {
  const { model: folder, config: file, seed } = options;
  if (folder !== undefined) {
    const config = readConfig(join(folder, "config.json"));
    const tokenizer = tokenizerOf(options.tokenizer ?? folder);
    return {
      ...{ tokenizer, checksum: checksumOfFolder(folder), maxLength: maxLengthIn(config) },
      open: (device) =>
        requireLanguageModel(
          folder,
          options.lora
            ? // PEFT reads the name of the base from the adapter's config.
              loadPretrained(folder, {
                ...{ device, frozen: true, dtype: baseDtypeOf(options), config: { _name_or_path: folder } },
              })
            : loadPretrained(folder, { device }),
        ),
    };
  }
  const path = file ?? "";
  const tokenizer = tokenizerOf(options.tokenizer ?? "bytes");
  const config = completeConfig(readConfig(path), tokenizer);
  return {
    ...{ tokenizer, checksum: shortHash(JSON.stringify(config)), maxLength: maxLengthIn(config) },
    open: (device) => {
      manualSeed(seed);
      return requireLanguageModel(path, (modelFromConfig(config) as PretrainedModel).to(device));
    },
  };
}

/** The tokenizer of a folder, or one that has the bytes as its ids. */
function tokenizerOf(name: string): Tokenizer {
  return name === "bytes" ? new ByteTokenizer({ eosToken: endToken }) : loadTokenizer(name);
}

function readConfig(path: string): ModelConfig {
  const bytes = withFileError(`${path} can't be read`, path, () => readRegularFile(path, maxConfigBytes));
  return parseJson(bytes, path, configLimits).record();
}

/** A config without a vocabulary or an end token gets those of the tokenizer. */
function completeConfig(config: ModelConfig, { vocabularySize, eosId }: Tokenizer): ModelConfig {
  return {
    vocab_size: vocabularySize,
    ...(eosId !== undefined && { eos_token_id: eosId, bos_token_id: null }),
    ...config,
  };
}

function maxLengthIn(config: ModelConfig): number | undefined {
  const found = [config["max_position_embeddings"], config["n_positions"]].find(Number.isSafeInteger);
  return typeof found === "number" && found >= 2 ? found : undefined;
}

function requireLanguageModel(path: string, model: PretrainedModel): LanguageModel {
  if (model instanceof LanguageModel) return model;
  throw new HoldfastError(
    "BAD_ARGUMENT",
    `${path} has a ${model.constructor.name}, which does not predict next tokens. Pass a decoder, such as gpt2, llama, mistral, qwen2 or qwen3.`,
  );
}

export const shortHash = (text: string | Uint8Array): string =>
  createHash("sha256").update(text).digest("hex").slice(0, 16);

/** Bytes of weights that are hashed: at the beginning of each span of a file. */
const [hashedBytes, spanBytes] = [64 * 1024, 16 * MiB];

/** A checksum of the config, and of samples of the weights: enough to notice that a folder has another model. */
function checksumOfFolder(folder: string): string {
  const hash = createHash("sha256");
  const what = `${folder} can't be read`;
  const names = withFileError(what, folder, () => readdirSync(folder))
    .filter((name) => name === "config.json" || /^model.*\.safetensors(?:\.index\.json)?$/.test(name))
    .sort();
  for (const name of names) {
    const path = join(folder, name);
    withFileError(what, path, () => {
      const {
        file,
        stats: { size },
      } = openRegularFile(path);
      try {
        hash.update(`${name} ${size}\n`);
        for (let offset = 0; offset < size; offset += spanBytes)
          hash.update(readSpan(file, offset, Math.min(hashedBytes, size - offset)));
      } finally {
        closeSync(file);
      }
    });
  }
  return hash.digest("hex").slice(0, 16);
}
