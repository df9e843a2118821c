/** A tokenizer without a vocabulary to learn: an id for each byte, and special tokens after them. */

import { HoldfastError } from "../../errors/index.js";
import { byteCharacters } from "./byte-alphabet.js";
import { readParts } from "./load.js";
import { Tokenizer, type TokenizerFiles } from "./tokenizer.js";

/** Options of a `ByteTokenizer`. Special tokens get ids from 256 on, in the order of these options. */
export interface ByteTokenizerOptions {
  readonly bosToken?: string;
  readonly eosToken?: string;
  readonly padToken?: string;
  /** More special tokens, such as those of a chat template. */
  readonly specialTokens?: readonly string[];
  /** A Jinja template for chats. */
  readonly chatTemplate?: string;
  /** Put the beginning token before each text, if there is one. Default: false. */
  readonly addBosToken?: boolean;
}

/**
 * Ids 0 to 255 are the bytes of the text in UTF-8, and special tokens follow. It needs no file, and suits small models and tests. It is
 * saved and loaded as any other tokenizer.
 *
 * @example
 * ```ts
 * import { ByteTokenizer } from "holdfast";
 * const tokenizer = new ByteTokenizer({ bosToken: "<s>", eosToken: "</s>", padToken: "<pad>" });
 * console.log(tokenizer.vocabularySize, tokenizer.encode("é")); // → 259 Int32Array(2) [ 195, 169 ]
 * ```
 */
export class ByteTokenizer extends Tokenizer {
  constructor(options: ByteTokenizerOptions = {}) {
    super(readParts(filesOf(options), "the byte tokenizer"));
  }
}

function filesOf(options: ByteTokenizerOptions): TokenizerFiles {
  const { bosToken, eosToken, padToken, specialTokens = [], chatTemplate, addBosToken = false } = options;
  const special = [
    ...new Set([bosToken, eosToken, padToken, ...specialTokens].filter((token) => token !== undefined)),
  ];
  if (special.includes("")) {
    throw new HoldfastError("BAD_ARGUMENT", "A special token of a ByteTokenizer is empty. Give it a text.");
  }
  if (addBosToken && bosToken === undefined)
    throw new HoldfastError("BAD_ARGUMENT", "ByteTokenizer: addBosToken needs a bosToken.");
  const byteLevel = { type: "ByteLevel", add_prefix_space: false, trim_offsets: true, use_regex: false };
  const bosId = 256;
  const template = {
    type: "TemplateProcessing",
    single: [{ SpecialToken: { id: bosToken, type_id: 0 } }, { Sequence: { id: "A", type_id: 0 } }],
    pair: [{ Sequence: { id: "A", type_id: 0 } }, { Sequence: { id: "B", type_id: 1 } }],
    special_tokens: { [bosToken ?? ""]: { id: bosToken, ids: [bosId], tokens: [bosToken] } },
  };
  const tokenizer = {
    version: "1.0",
    truncation: null,
    padding: null,
    added_tokens: special.map((content, index) => ({
      id: 256 + index,
      content,
      single_word: false,
      lstrip: false,
      rstrip: false,
      normalized: false,
      special: true,
    })),
    normalizer: null,
    pre_tokenizer: byteLevel,
    post_processor: addBosToken ? template : null,
    decoder: byteLevel,
    model: {
      type: "BPE",
      dropout: null,
      unk_token: null,
      continuing_subword_prefix: null,
      end_of_word_suffix: null,
      fuse_unk: false,
      byte_fallback: false,
      ignore_merges: false,
      vocab: Object.fromEntries(byteCharacters.map((character, byte) => [character, byte])),
      merges: [],
    },
  };
  const config = {
    tokenizer_class: "PreTrainedTokenizerFast",
    clean_up_tokenization_spaces: false,
    ...(bosToken === undefined ? {} : { bos_token: bosToken }),
    ...(eosToken === undefined ? {} : { eos_token: eosToken }),
    ...(padToken === undefined ? {} : { pad_token: padToken }),
    ...(chatTemplate === undefined ? {} : { chat_template: chatTemplate }),
  };
  const encoder = new TextEncoder();
  const encode = (value: unknown): Uint8Array => encoder.encode(`${JSON.stringify(value, undefined, 2)}\n`);
  return new Map([
    ["tokenizer.json", encode(tokenizer)],
    ["tokenizer_config.json", encode(config)],
  ]);
}
