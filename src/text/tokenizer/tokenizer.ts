/** A tokenizer: text to ids and back, special tokens, and the chat template. */

import { HoldfastError } from "../../errors/index.js";
import { type ChatMessage, ChatTemplate, type ChatTemplateOptions } from "../chat/index.js";
import { DecodeStream } from "./decode-stream.js";
import type { Pipeline } from "./pipeline.js";
import type { SpecialTokens } from "./special-tokens.js";

/** Options of `Tokenizer.encode`. */
export interface EncodeOptions {
  /** Add the special tokens that the tokenizer puts around a text, such as one for its beginning. Default: true. */
  readonly addSpecialTokens?: boolean;
}

/** Options of `Tokenizer.decode`. */
export interface DecodeOptions {
  /** Leave out special tokens. Default: false. */
  readonly skipSpecialTokens?: boolean;
}

/** Options of `Tokenizer.encodeBatch`. */
export interface EncodeBatchOptions extends EncodeOptions {
  /** The side that shorter texts are padded on. Default: "right". */
  readonly padding?: "left" | "right";
  /** Cut longer texts to so many ids. */
  readonly maxLength?: number;
  /** Default: the padding token, or the end token if there is none. */
  readonly padId?: number;
}

/** Several encoded texts, padded to one length. */
export interface EncodedBatch {
  /** [texts, length] */
  readonly shape: readonly [number, number];
  /** In row-major order. */
  readonly inputIds: Int32Array;
  /** 1 for ids of a text, 0 for padding. */
  readonly attentionMask: Int32Array;
}

/** The files that a tokenizer is saved as: names and contents. */
export type TokenizerFiles = ReadonlyMap<string, Uint8Array>;

/** A chat template, and its file's name for errors. Clients of a server see them, so they have no paths. */
export interface TemplateText {
  readonly source: string;
  readonly file: string;
}

/** @internal */
export interface TokenizerParts {
  readonly pipeline: Pipeline;
  readonly special: SpecialTokens;
  readonly before: readonly number[];
  readonly after: readonly number[];
  readonly templates: ReadonlyMap<string, TemplateText>;
  readonly files: TokenizerFiles;
}

/**
 * Makes ids of text, and text of ids. `loadTokenizer` reads one from a model folder; a `ByteTokenizer` needs no file.
 *
 * @example
 * ```ts
 * import { ByteTokenizer } from "holdfast";
 * const tokenizer = new ByteTokenizer();
 * const ids = tokenizer.encode("Hi!");
 * console.log(ids, tokenizer.decode(ids)); // → Int32Array(3) [ 72, 105, 33 ] Hi!
 * ```
 */
export class Tokenizer {
  /** The highest id and one: the rows that a model's embedding needs. */
  readonly vocabularySize: number;
  /** The id of the token that begins a text; undefined if there is none. */
  readonly bosId: number | undefined;
  /** The id of the token that ends a text; undefined if there is none. */
  readonly eosId: number | undefined;
  /** The id of the padding token; undefined if there is none. */
  readonly padId: number | undefined;
  /** The id of the token for unknown text; undefined if there is none. */
  readonly unkId: number | undefined;
  /** The files of `saveTokenizer`. */
  readonly files: TokenizerFiles;
  readonly #parts: TokenizerParts;
  readonly #templates = new Map<string, ChatTemplate>();

  /** @internal */
  constructor(parts: TokenizerParts) {
    const { pipeline, special } = parts;
    const idOf = (token: string | undefined): number | undefined =>
      token === undefined ? undefined : pipeline.ids.get(token);
    this.#parts = parts;
    this.vocabularySize = pipeline.tokens.length;
    this.bosId = idOf(special.bos_token);
    this.eosId = idOf(special.eos_token);
    this.padId = idOf(special.pad_token);
    this.unkId = idOf(special.unk_token);
    this.files = parts.files;
  }

  /**
   * The ids of a text.
   *
   * @example
   * ```ts
   * import { ByteTokenizer } from "holdfast";
   * const tokenizer = new ByteTokenizer({ eosToken: "<|end|>" });
   * console.log(tokenizer.encode("A<|end|>")); // → Int32Array(2) [ 65, 256 ]
   * ```
   */
  encode(text: string, { addSpecialTokens = true }: EncodeOptions = {}): Int32Array {
    if (typeof text !== "string")
      throw new HoldfastError("BAD_ARGUMENT", `Tokenizer.encode got a ${typeof text}; pass a string.`);
    const { pipeline, before, after } = this.#parts;
    const ids = pipeline.encode(text);
    return Int32Array.from(addSpecialTokens ? [...before, ...ids, ...after] : ids);
  }

  /**
   * The ids of several texts, padded to the length of the longest.
   *
   * @example
   * ```ts
   * import { ByteTokenizer } from "holdfast";
   * const tokenizer = new ByteTokenizer({ padToken: "<pad>" });
   * const { shape, inputIds, attentionMask } = tokenizer.encodeBatch(["AB", "C"]);
   * console.log(shape, inputIds, attentionMask); // → [ 2, 2 ] Int32Array(4) [ 65, 66, 67, 256 ] Int32Array(4) [ 1, 1, 1, 0 ]
   * ```
   */
  encodeBatch(texts: readonly string[], options: EncodeBatchOptions = {}): EncodedBatch {
    const { maxLength = Number.POSITIVE_INFINITY, padding = "right" } = options;
    const encoded = texts.map((text) => this.encode(text, options).subarray(0, maxLength));
    const length = encoded.reduce((max, ids) => Math.max(max, ids.length), 0);
    const padId = options.padId ?? this.padId ?? this.eosId;
    if (padId === undefined && encoded.some((ids) => ids.length < length)) {
      throw new HoldfastError(
        "BAD_ARGUMENT",
        "The texts have different lengths, and the tokenizer has no padding token. Pass padId.",
      );
    }
    const inputIds = new Int32Array(texts.length * length).fill(padId ?? 0);
    const attentionMask = new Int32Array(texts.length * length);
    for (const [row, ids] of encoded.entries()) {
      const start = row * length + (padding === "left" ? length - ids.length : 0);
      inputIds.set(ids, start);
      attentionMask.fill(1, start, start + ids.length);
    }
    return { shape: [texts.length, length], inputIds, attentionMask };
  }

  /**
   * The text of ids. Ids outside the vocabulary are left out.
   *
   * @example
   * ```ts
   * import { ByteTokenizer } from "holdfast";
   * const tokenizer = new ByteTokenizer({ eosToken: "<|end|>" });
   * console.log(tokenizer.decode([72, 105, 256])); // → Hi<|end|>
   * console.log(tokenizer.decode([72, 105, 256], { skipSpecialTokens: true })); // → Hi
   * ```
   */
  decode(ids: Iterable<number>, { skipSpecialTokens = false }: DecodeOptions = {}): string {
    const { pipeline } = this.#parts;
    const list = [...ids];
    return pipeline.decode(skipSpecialTokens ? list.filter((id) => !pipeline.specialIds.has(id)) : list);
  }

  /**
   * Decodes ids that arrive one by one. By default special tokens are left out.
   *
   * @example
   * ```ts
   * import { ByteTokenizer } from "holdfast";
   * const tokenizer = new ByteTokenizer();
   * const stream = tokenizer.decodeStream();
   * let text = "";
   * for (const id of tokenizer.encode("naïve")) text += stream.push(id);
   * console.log(text + stream.end()); // → naïve
   * ```
   */
  decodeStream({ skipSpecialTokens = true }: DecodeOptions = {}): DecodeStream {
    const { pipeline } = this.#parts;
    return new DecodeStream(
      (ids) => pipeline.decode(ids),
      (id) => pipeline.tokens[id] === undefined || (skipSpecialTokens && pipeline.specialIds.has(id)),
    );
  }

  /**
   * The id of a token; undefined if it is not in the vocabulary.
   *
   * @example
   * ```ts
   * import { ByteTokenizer } from "holdfast";
   * console.log(new ByteTokenizer({ eosToken: "<|end|>" }).idOf("<|end|>")); // → 256
   * ```
   */
  idOf(token: string): number | undefined {
    return this.#parts.pipeline.ids.get(token);
  }

  /**
   * The token of an id as the vocabulary writes it; undefined if there is none.
   *
   * @example
   * ```ts
   * import { ByteTokenizer } from "holdfast";
   * console.log(new ByteTokenizer().tokenOf(65)); // → A
   * ```
   */
  tokenOf(id: number): string | undefined {
    return this.#parts.pipeline.tokens[id];
  }

  /**
   * True for special tokens, such as the end of a text.
   *
   * @example
   * ```ts
   * import { ByteTokenizer } from "holdfast";
   * const tokenizer = new ByteTokenizer({ eosToken: "<|end|>" });
   * console.log(tokenizer.isSpecial(256), tokenizer.isSpecial(65)); // → true false
   * ```
   */
  isSpecial(id: number): boolean {
    return this.#parts.pipeline.specialIds.has(id);
  }

  /**
   * The names of the chat templates. The usual one is "default".
   *
   * @example
   * ```ts
   * import { ByteTokenizer } from "holdfast";
   * console.log(new ByteTokenizer({ chatTemplate: "{{ messages }}" }).chatTemplates); // → [ 'default' ]
   * ```
   */
  get chatTemplates(): readonly string[] {
    return [...this.#parts.templates.keys()];
  }

  /**
   * The text of a chat, as the chat template writes it. Encode it without special tokens: the template has written them.
   *
   * @example
   * ```ts
   * import { ByteTokenizer } from "holdfast";
   * const chatTemplate = "{% for m in messages %}<{{ m.role }}>{{ m.content }}\n{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}";
   * const tokenizer = new ByteTokenizer({ chatTemplate });
   * const text = tokenizer.applyChatTemplate([{ role: "user", content: "2+2?" }], { addGenerationPrompt: true });
   * console.log(JSON.stringify(text)); // → "<user>2+2?\n<assistant>"
   * ```
   */
  applyChatTemplate(messages: readonly ChatMessage[], options: ChatTemplateOptions = {}): string {
    return this.chatTemplate(options.template).render(messages, options);
  }

  /** @internal The ids that `encode` puts before and after a text. */
  get addedEnds(): { readonly before: readonly number[]; readonly after: readonly number[] } {
    const { before, after } = this.#parts;
    return { before, after };
  }

  /** @internal A chat template by its name. */
  chatTemplate(name = "default"): ChatTemplate {
    const known = this.#templates.get(name);
    if (known) return known;
    const { templates, special } = this.#parts;
    const text = templates.get(name);
    if (text === undefined) {
      const names = [...templates.keys()];
      throw new HoldfastError(
        "BAD_ARGUMENT",
        names.length === 0
          ? "The tokenizer has no chat template. Add a file chat_template.jinja to its folder, or use prompts without a template."
          : `The tokenizer has no chat template "${name}"; it has ${names.join(", ")}.`,
      );
    }
    const template = new ChatTemplate(text.source, special, text.file);
    this.#templates.set(name, template);
    return template;
  }
}
