/** Folders with all files that a model may have, in memory, and a program that uses all of them. */

import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import {
  applyLora,
  ByteTokenizer,
  Device,
  HoldfastError,
  loadGenerationConfig,
  loadLora,
  loadPretrained,
  loadTokenizer,
  manualSeed,
  modelFromConfig,
  models,
  noGrad,
  saveLora,
  savePretrained,
  saveTokenizer,
  tensor,
} from "../../../src/index.js";

/** Contents by path, such as "adapter/adapter_config.json". */
export type FolderFiles = ReadonlyMap<string, Uint8Array>;

const config = {
  ...{ model_type: "llama", vocab_size: 259, hidden_size: 8, intermediate_size: 12, num_hidden_layers: 2 },
  ...{ num_attention_heads: 4, num_key_value_heads: 2, max_position_embeddings: 64 },
};
const chatTemplate =
  "{% for m in messages %}<{{ m.role }}>{{ m.content | trim }}{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}";

export function openSmallDevice(): Device {
  const quiet = { stallAfter: "off", threads: 1, print: () => {} } as const;
  return new Device("cpu", { memory: "64MiB", staging: "2MiB", ...quiet });
}

/** The files of a model with its weights in one file, and in several with an index. */
export function makeModelFolders(): { readonly whole: FolderFiles; readonly sharded: FolderFiles } {
  const root = mkdtempSync(join(tmpdir(), "holdfast-models-"));
  const device = openSmallDevice();
  try {
    manualSeed(3);
    const model = modelFromConfig(config).to(device);
    const [whole, sharded] = [join(root, "whole"), join(root, "sharded")];
    savePretrained(model, whole);
    savePretrained(model, sharded, { maxShardBytes: 9000 });
    saveTokenizer(
      new ByteTokenizer({ bosToken: "<s>", eosToken: "</s>", padToken: "<pad>", chatTemplate }),
      whole,
    );
    const write = (name: string, text: string): void => writeFileSync(join(whole, name), text);
    write("special_tokens_map.json", JSON.stringify({ unk_token: { content: "<s>", lstrip: false } }));
    write("chat_template.jinja", chatTemplate);
    write(
      "generation_config.json",
      JSON.stringify({ do_sample: true, temperature: 0.5, eos_token_id: [257] }),
    );
    saveLora(applyLora(model, { rank: 2, targets: ["q_proj", "v_proj"] }), join(whole, "adapter"));
    return { whole: readFolder(whole), sharded: readFolder(sharded) };
  } finally {
    device.close();
    rmSync(root, { recursive: true });
  }
}

function readFolder(folder: string): FolderFiles {
  const paths = readdirSync(folder, { recursive: true, withFileTypes: true }).flatMap((entry) =>
    entry.isFile() ? [join(entry.parentPath, entry.name).slice(folder.length + 1)] : [],
  );
  return new Map(paths.sort().map((path) => [path, new Uint8Array(readFileSync(join(folder, path)))]));
}

export function writeFolder(folder: string, files: FolderFiles): void {
  for (const [path, content] of files) {
    mkdirSync(dirname(join(folder, path)), { recursive: true });
    writeFileSync(join(folder, path), content);
  }
}

/** What became of a folder. */
export interface UsedFolder {
  /** Of each part that could not be used. */
  readonly errors: readonly HoldfastError[];
  /** The weights by name, if the model was loaded. */
  readonly weights: ReadonlyMap<string, unknown> | undefined;
}

/** What of a folder is used. */
export type FolderPart = "model" | "adapter" | "tokenizer" | "generation";
const allParts: readonly FolderPart[] = ["model", "adapter", "tokenizer", "generation"];

/** Loads and runs parts of a folder. Errors other than HoldfastErrors are thrown. */
export function useModelFolder(
  folder: string,
  device: Device,
  parts: readonly FolderPart[] = allParts,
): UsedFolder {
  const errors: HoldfastError[] = [];
  const attempt = <Result>(run: () => Result): Result | undefined => {
    try {
      return run();
    } catch (error) {
      if (!(error instanceof HoldfastError)) throw error;
      errors.push(error);
      return undefined;
    }
  };
  const needsModel = parts.includes("model") || parts.includes("adapter");
  const model = needsModel ? attempt(() => loadPretrained(folder, { device })) : undefined;
  const weights = model && new Map([...model.namedParameters()].map(([name, one]) => [name, one.dataSync()]));
  if (model instanceof models.LanguageModel && parts.includes("model")) {
    const ids = tensor([[1, 2, 3]], { dtype: "i32", device });
    attempt(() => device.step(() => noGrad(() => model.forward(ids).dataSync())));
    attempt(() => savePretrained(model, join(folder, "saved")));
  }
  if (model && parts.includes("adapter")) attempt(() => loadLora(model, join(folder, "adapter")));
  const tokenizer = parts.includes("tokenizer") ? attempt(() => loadTokenizer(folder)) : undefined;
  if (tokenizer) {
    attempt(() => tokenizer.decode(tokenizer.encode("Hello wörld </s> aaaa")));
    attempt(() => tokenizer.decodeStream().push(104));
    attempt(() => tokenizer.applyChatTemplate([{ role: "user", content: " x " }]));
  }
  if (parts.includes("generation")) attempt(() => loadGenerationConfig(folder));
  rmSync(join(folder, "saved"), { recursive: true, force: true });
  return { errors, weights };
}
