/** Text data for language models: files of texts, prompts and chats, as rows of tokens with labels. */

import { createHash, type Hash } from "node:crypto";
import { setImmediate as nextTurn } from "node:timers/promises";
import type { TensorDataset } from "../../data/index.js";
import { readHostMemory } from "../../driver/index.js";
import { checkOptions, HoldfastError } from "../../errors/index.js";
import { permutation, type Seed } from "../../kernels/index.js";
import { currentSeed } from "../../tensor/index.js";
import { beat } from "../../units/index.js";
import type { Tokenizer } from "../tokenizer/index.js";
import { atLine, type EncodedText, encodeExample, endIds, startIds } from "./encode-example.js";
import { planPackedRows, planSingleRows } from "./plan-rows.js";
import { readExample } from "./read-example.js";
import { decodeLine, type Line, readLines } from "./read-lines.js";
import { makeRows, type TextColumns } from "./row-columns.js";
import { TokenStore } from "./token-store.js";

export type { TextColumns } from "./row-columns.js";

/** Options of `loadTextData`. */
export interface TextDataOptions {
  readonly tokenizer: Tokenizer;
  /** Tokens in a row. */
  readonly length: number;
  /** Put several texts into a row, with positions and segments that keep them apart. Default: true. */
  readonly packing?: boolean;
  /**
   * What to do with a text of more tokens than a row: split it into several texts, keep its beginning, or leave it out. Default: split texts,
   * and keep the beginnings of prompts and chats.
   */
  readonly longTexts?: "split" | "truncate" | "drop";
  /** The loss of prompts and chats: on completions and the assistant's answers, or on all tokens. Default: "answers". */
  readonly lossOn?: "answers" | "all";
  /** The share of the texts to hold out, from 0 to below 1. Of a `.txt` file, its end is held out. Default: 0. */
  readonly heldOut?: number;
  /** Selects the texts to hold out. Default: the seed of `manualSeed`. */
  readonly seed?: Seed;
  /** The name of the chat template, if there are several. */
  readonly template?: string;
  /** More tokens are rejected. Default: as many as fit into half of the free memory. */
  readonly maxTokens?: number;
  /** Called after each part of a file. */
  readonly onProgress?: (bytes: number) => void;
  /** Ends the reading. */
  readonly signal?: AbortSignal;
}

/** Counts of text data. */
export interface TextFigures {
  /** Texts of the files, after splitting long ones. */
  readonly texts: number;
  readonly tokens: number;
  /** Tokens that count in the loss. */
  readonly countedTokens: number;
  /** Texts whose end was cut off. */
  readonly truncated: number;
  /** Texts that were left out: too long, or without tokens that count. */
  readonly dropped: number;
}

/** Rows for training, and held-out rows. */
export interface TextData {
  readonly train: TensorDataset<TextColumns>;
  readonly heldOut: TensorDataset<TextColumns> | undefined;
  readonly figures: TextFigures;
  /** SHA-256 of the files' contents, in hexadecimal. */
  readonly digest: string;
}

/** Bytes of a token in the store and in the four columns. */
const bytesPerToken = 20;
const maxRowLength = 2 ** 20;
const turnMs = 20;

/**
 * Reads `.txt` and `.jsonl` files as rows of tokens. A line of a `.jsonl` file has `text`, or `prompt` and `completion`, or `messages`. A
 * `.txt` file is one long text. Files may be larger than the memory; their tokens must fit.
 *
 * The columns are ids and labels, and if a row has several texts, positions and segments: pass them to `model.loss`.
 *
 * @example
 * ```ts
 * import { mkdtempSync, writeFileSync } from "node:fs";
 * import { tmpdir } from "node:os";
 * import { join } from "node:path";
 * import { ByteTokenizer, loadTextData } from "holdfast";
 * const file = join(mkdtempSync(join(tmpdir(), "texts-")), "sums.jsonl");
 * writeFileSync(file, '{"prompt": "1+1=", "completion": "2"}\n{"prompt": "2+2=", "completion": "4"}\n');
 * const tokenizer = new ByteTokenizer({ eosToken: "</s>" });
 * const { train, figures } = await loadTextData(file, { tokenizer, length: 12 });
 * const [ids, labels] = train.get(0);
 * console.log(tokenizer.decode(Array.from(ids.values, Number))); // → 1+1=2</s>2+2=4</s>
 * console.log(Array.from(labels.values, Number).filter((label) => label >= 0).length, figures.countedTokens); // → 4 4
 * ```
 */
export async function loadTextData(
  files: string | readonly string[],
  options: TextDataOptions,
): Promise<TextData> {
  const settings = requireTextOptions(options);
  const paths = typeof files === "string" ? [files] : files;
  if (paths.length === 0)
    throw new HoldfastError("BAD_ARGUMENT", "loadTextData got no files. Pass the path of a file.");
  const reader = new TextReader(settings);
  for (const path of paths) await reader.read(path);
  return reader.finish(paths);
}

interface TextSettings extends TextDataOptions {
  readonly packing: boolean;
  readonly lossOn: "answers" | "all";
  readonly heldOut: number;
  readonly seed: Seed;
  readonly maxTokens: number;
}

function requireTextOptions(options: TextDataOptions): TextSettings {
  const {
    tokenizer,
    length,
    heldOut = 0,
    packing = true,
    lossOn = "answers",
    longTexts,
  } = checkOptions("loadTextData", options, {
    ...{ tokenizer: true, length: true, packing: true, longTexts: true, lossOn: true, heldOut: true },
    ...{ seed: true, template: true, maxTokens: true, onProgress: true, signal: true },
  });
  if (typeof tokenizer?.encode !== "function")
    throw new HoldfastError("BAD_ARGUMENT", "loadTextData needs a tokenizer: pass that of the model.");
  if (!Number.isSafeInteger(length) || length < 2 || length > maxRowLength)
    throw badOption("length", length, `a whole number of tokens from 2 to ${maxRowLength}`);
  if (!(heldOut >= 0 && heldOut < 1)) throw badOption("heldOut", heldOut, "a share from 0 to below 1");
  if (!["answers", "all"].includes(lossOn)) throw badOption("lossOn", lossOn, '"answers" or "all"');
  if (longTexts !== undefined && !["split", "truncate", "drop"].includes(longTexts))
    throw badOption("longTexts", longTexts, '"split", "truncate" or "drop"');
  const { maxTokens = Math.floor(readHostMemory().available / 2 / bytesPerToken), seed = currentSeed() } =
    options;
  return { ...options, packing, lossOn, heldOut, maxTokens, seed };
}

function badOption(name: string, value: unknown, expected: string): HoldfastError {
  return new HoldfastError("BAD_ARGUMENT", `loadTextData: ${name} is ${String(value)}; pass ${expected}.`, {
    numbers: { [name]: String(value) },
  });
}

class TextReader {
  readonly #settings: TextSettings;
  readonly #store: TokenStore;
  readonly #hash: Hash = createHash("sha256");
  /** The held-out texts of `.txt` files. */
  readonly #ends: number[] = [];
  /** Texts of `.jsonl` files: they are held out by chance. */
  readonly #listed: number[] = [];
  #counts = { countedTokens: 0, truncated: 0, dropped: 0 };
  #turnMs = performance.now();

  constructor(settings: TextSettings) {
    this.#settings = settings;
    this.#store = new TokenStore(settings.maxTokens);
  }

  async read(path: string): Promise<void> {
    const isList = /\.(?:jsonl|ndjson)$/i.test(path);
    if (!isList && !/\.txt$/i.test(path)) {
      throw new HoldfastError(
        "BAD_ARGUMENT",
        `${path} must end in .txt (one text) or .jsonl (an example in each line). Rename or convert the file.`,
      );
    }
    const { onProgress } = this.#settings;
    let bytes = 0;
    const onBytes = (part: Uint8Array): void => {
      this.#hash.update(part);
      bytes += part.length;
      onProgress?.(bytes);
      beat();
    };
    const lines = readLines(path, { onBytes });
    if (isList) await this.#readExamples(path, lines);
    else await this.#readText(path, lines);
  }

  async #readExamples(path: string, lines: Iterable<Line>): Promise<void> {
    const { tokenizer, lossOn, template } = this.#settings;
    for (const line of lines) {
      await this.#takeTurn();
      if (isBlank(line.bytes)) continue;
      const first = this.#store.length;
      try {
        const example = readExample(`${path}, line ${line.number}`, line.bytes);
        const long = this.#settings.longTexts ?? (example.kind === "text" ? "split" : "truncate");
        for (const text of encodeExample(tokenizer, example, { lossOn, template })) this.#add(text, long);
      } catch (error) {
        throw atLine(path, line.number, error);
      }
      for (let text = first; text < this.#store.length; text++) this.#listed.push(text);
    }
  }

  /** One text. It is encoded in parts, which end after a line. */
  async #readText(path: string, lines: Iterable<Line>): Promise<void> {
    const { tokenizer, length, heldOut } = this.#settings;
    const first = this.#store.length;
    let ids: number[] = [...startIds(tokenizer)];
    const cut = (): void => {
      let start = 0;
      for (; ids.length - start >= length; start += length)
        this.#add({ ids: ids.slice(start, start + length) }, "split");
      ids = ids.slice(start);
    };
    for (const part of partsOf(path, lines)) {
      for (const id of tokenizer.encode(part, { addSpecialTokens: false })) ids.push(id);
      cut();
      await this.#takeTurn();
    }
    ids.push(...endIds(tokenizer));
    cut();
    if (ids.length > 0) this.#add({ ids }, "split");
    const texts = this.#store.length - first;
    const kept = texts - countHeldOut(texts, heldOut);
    for (let text = first + kept; text < this.#store.length; text++) this.#ends.push(text);
  }

  /** Adds a text, in parts if it is split. Texts without tokens that count are left out. */
  #add({ ids, counted }: EncodedText, long: "split" | "truncate" | "drop"): void {
    const { length } = this.#settings;
    if (ids.length === 0 || (ids.length > length && long === "drop")) {
      this.#counts.dropped += 1;
      return;
    }
    if (ids.length > length && long === "truncate") this.#counts.truncated += 1;
    const isCounted = counted && markRanges(counted, ids.length);
    const total = long === "split" ? ids.length : Math.min(ids.length, length);
    for (let start = 0; start < total; start += length) {
      const end = Math.min(start + length, total);
      let count = 0;
      // The first token of a text has no label.
      for (let index = start + 1; index < end; index++) count += isCounted?.[index] ?? 1;
      if (count === 0) {
        this.#counts.dropped += 1;
        continue;
      }
      this.#counts.countedTokens += count;
      const tokens = this.#store.add(end - start);
      for (let index = start; index < end; index++) {
        const id = ids[index] ?? 0;
        tokens[index - start] = (isCounted?.[index] ?? 1) === 1 ? id : ~id;
      }
    }
  }

  finish(paths: readonly string[]): TextData {
    const { heldOut, seed, length, packing, tokenizer } = this.#settings;
    const isHeldOut = new Uint8Array(this.#store.length);
    for (const text of this.#ends) isHeldOut[text] = 1;
    const order = permutation({ seed, id: 0 }, this.#listed.length);
    for (const index of order.subarray(0, countHeldOut(this.#listed.length, heldOut)))
      isHeldOut[this.#listed[index] ?? 0] = 1;
    const select = (held: number): Uint32Array => {
      const texts = Uint32Array.from({ length: this.#store.length }, (_, text) => text);
      return texts.filter((text) => isHeldOut[text] === held);
    };
    const padId = tokenizer.padId ?? tokenizer.eosId ?? 0;
    const rowsOf = (texts: Uint32Array): TensorDataset<TextColumns> => {
      const lengths = texts.map((text) => this.#store.lengthOf(text));
      const plan = packing ? planPackedRows(lengths, length) : planSingleRows(texts.length);
      return makeRows(this.#store, texts, plan, { length, padId });
    };
    const [trained, held] = [select(0), select(1)];
    if (trained.length === 0) throw this.#nothing(paths);
    return {
      train: rowsOf(trained),
      heldOut: held.length > 0 ? rowsOf(held) : undefined,
      figures: { texts: this.#store.length, tokens: this.#store.tokens, ...this.#counts },
      digest: this.#hash.digest("hex"),
    };
  }

  #nothing(paths: readonly string[]): HoldfastError {
    const { length } = this.#settings;
    const { dropped, truncated } = this.#counts;
    return new HoldfastError(
      "BAD_FILE",
      `${paths.join(", ")} has no text to train on: ${dropped} texts were left out, and ${truncated} were cut to ${length} tokens. ` +
        "A text needs two tokens, and one that counts. Add texts, or use longer rows.",
      { numbers: { dropped, truncated, length } },
    );
  }

  /** Lets timers and signals run. */
  async #takeTurn(): Promise<void> {
    if (performance.now() - this.#turnMs < turnMs) return;
    await nextTurn();
    this.#turnMs = performance.now();
    this.#settings.signal?.throwIfAborted();
  }
}

/** At least one of several if a share is held out, and never all. */
function countHeldOut(texts: number, share: number): number {
  if (share === 0 || texts < 2) return 0;
  return Math.min(texts - 1, Math.max(1, Math.round(texts * share)));
}

function markRanges(ranges: readonly (readonly [number, number])[], length: number): Uint8Array {
  const marks = new Uint8Array(length);
  for (const [start, end] of ranges) marks.fill(1, start, end);
  return marks;
}

/** True for spaces, tabs and line ends. */
function isBlank(bytes: Uint8Array): boolean {
  return bytes.every((byte) => byte === 0x20 || (byte >= 0x09 && byte <= 0x0d));
}

/** Characters of a text that are encoded at a time, and the maximum before a line that starts with white space. */
const partLength = 2 ** 18;
const maxPartLength = 2 ** 22;

/** Parts of a text, cut before lines that start with neither white space nor a line end: tokens rarely cross there. */
function* partsOf(path: string, lines: Iterable<Line>): Generator<string> {
  let part = "";
  for (const line of lines) {
    const text = decodeLine(path, line);
    if (part.length >= (/^\S/.test(text) ? partLength : maxPartLength)) {
      yield part;
      part = "";
    }
    part += text;
  }
  if (part !== "") yield part;
}
