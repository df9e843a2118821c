/** Reads a tokenizer from a model folder, as Hugging Face lays it out, and writes one. */

import { basename, join } from "node:path";
import { makeFolder, writeAtomically } from "../../data/index.js";
import { HoldfastError } from "../../errors/index.js";
import { readRegularFile } from "../../files/index.js";
import { withDeadline } from "../deadline.js";
import { type JsonField, parseJson } from "../json-field.js";
import { Pipeline } from "./pipeline.js";
import { readAddedEnds, readSpecialTokens } from "./special-tokens.js";
import { type TemplateText, Tokenizer, type TokenizerFiles, type TokenizerParts } from "./tokenizer.js";

const MiB = 2 ** 20;
const maxTokenizerBytes = 64 * MiB;
const maxOtherBytes = 16 * MiB;
const maxTemplateLength = 256 * 1024;

/** The largest vocabularies in use have a million tokens. */
const tokenizerLimits = {
  ...{ maxContainers: 1_500_000, maxValues: 6_000_000, maxNames: 1_500_000, maxDepth: 64 },
};
const otherLimits = { maxContainers: 200_000, maxValues: 1_000_000, maxNames: 500_000, maxDepth: 64 };

/** Files beside tokenizer.json. */
const otherNames = ["tokenizer_config.json", "special_tokens_map.json", "chat_template.jinja"] as const;

/**
 * Reads the tokenizer of a model folder: `tokenizer.json`, and if they are there `tokenizer_config.json`, `special_tokens_map.json` and
 * `chat_template.jinja`. The files are untrusted: what they may cost is limited. A feature that Holdfast does not have is rejected by name.
 *
 * @example
 * ```ts
 * import { mkdtempSync } from "node:fs";
 * import { tmpdir } from "node:os";
 * import { join } from "node:path";
 * import { ByteTokenizer, loadTokenizer, saveTokenizer } from "holdfast";
 * const folder = mkdtempSync(join(tmpdir(), "tokenizer-"));
 * saveTokenizer(new ByteTokenizer({ eosToken: "<|end|>" }), folder);
 * const tokenizer = loadTokenizer(folder);
 * console.log(tokenizer.vocabularySize, tokenizer.eosId); // → 257 256
 * ```
 */
export function loadTokenizer(folder: string): Tokenizer {
  const files = new Map<string, Uint8Array>();
  const main = readFile(folder, "tokenizer.json", maxTokenizerBytes);
  if (!main) {
    throw new HoldfastError(
      "BAD_FILE",
      `${folder} has no tokenizer.json. Name a model folder that has one; for an older one, write it with AutoTokenizer.from_pretrained(…).save_pretrained(…) in Python.`,
      { numbers: { folder } },
    );
  }
  files.set("tokenizer.json", main);
  for (const name of otherNames) {
    const bytes = readFile(folder, name, maxOtherBytes);
    if (bytes) files.set(name, bytes);
  }
  return new Tokenizer(readParts(files, folder));
}

/**
 * Writes a tokenizer's files to a folder, as `loadTokenizer` reads them.
 *
 * @example
 * ```ts
 * import { mkdtempSync, readdirSync } from "node:fs";
 * import { tmpdir } from "node:os";
 * import { join } from "node:path";
 * import { ByteTokenizer, saveTokenizer } from "holdfast";
 * const folder = mkdtempSync(join(tmpdir(), "tokenizer-"));
 * saveTokenizer(new ByteTokenizer(), folder);
 * console.log(readdirSync(folder)); // → [ 'tokenizer.json', 'tokenizer_config.json' ]
 * ```
 */
export function saveTokenizer(tokenizer: Tokenizer, folder: string): void {
  makeFolder(folder);
  for (const [name, bytes] of tokenizer.files) writeAtomically(join(folder, name), [bytes]);
}

/** @internal Reads the contents of a tokenizer's files. */
export function readParts(files: TokenizerFiles, folder: string): TokenizerParts {
  const main = files.get("tokenizer.json") ?? new Uint8Array();
  const path = join(folder, "tokenizer.json");
  const maxMs = 900 + (main.length / MiB) * 250;
  return withDeadline(
    maxMs,
    () => `Reading the ${main.length} bytes of ${path}`,
    () => {
      const json = (name: string): JsonField | undefined => {
        const bytes = files.get(name);
        return bytes && parseJson(bytes, join(folder, name), otherLimits);
      };
      const config = json("tokenizer_config.json");
      const pipeline = new Pipeline(parseJson(main, path, tokenizerLimits));
      const special = readSpecialTokens([config, json("special_tokens_map.json")]);
      const ends = readAddedEnds(config);
      const idOf = (token: string | undefined): readonly number[] => {
        const id = token === undefined ? undefined : pipeline.ids.get(token);
        return id === undefined ? [] : [id];
      };
      const before = ends ? (ends.addsBos ? idOf(special.bos_token) : []) : pipeline.postProcessor.before;
      const after = ends ? (ends.addsEos ? idOf(special.eos_token) : []) : pipeline.postProcessor.after;
      const templates = readTemplates(
        join(folder, "chat_template.jinja"),
        files.get("chat_template.jinja"),
        config,
      );
      return { pipeline, special, before, after, templates, files };
    },
  );
}

/** Templates by name: a file of its own, a string, or a list of names and templates. */
function readTemplates(
  path: string,
  file: Uint8Array | undefined,
  config: JsonField | undefined,
): ReadonlyMap<string, TemplateText> {
  const templates = new Map<string, TemplateText>();
  const add = (name: string, field: JsonField): void => {
    templates.set(name, { source: field.string(maxTemplateLength), file: basename(field.file) });
  };
  const field = config?.get("chat_template");
  if (field && !field.isAbsent) {
    if (field.isString) add("default", field);
    else for (const entry of field.items(64)) add(entry.get("name").string(100), entry.get("template"));
  }
  if (file) {
    if (file.length > maxTemplateLength) {
      throw new HoldfastError(
        "BAD_FILE",
        `${path} has ${file.length} bytes; the maximum is ${maxTemplateLength}. Use a shorter template.`,
        { numbers: { path, bytes: file.length } },
      );
    }
    templates.set("default", { source: new TextDecoder().decode(file), file: basename(path) });
  }
  return templates;
}

/** The contents of a file; undefined if there is none. */
function readFile(folder: string, name: string, maxBytes: number): Uint8Array | undefined {
  const path = join(folder, name);
  try {
    return readRegularFile(path, maxBytes);
  } catch (cause) {
    const { code } = cause as NodeJS.ErrnoException;
    if (code === "ENOENT" || code === "ENOTDIR") return undefined;
    if (cause instanceof HoldfastError) throw cause;
    throw new HoldfastError(
      "BAD_FILE",
      `${path} can't be read (${code}). Check the file and its permissions.`,
      {
        numbers: { path },
        cause,
      },
    );
  }
}
