/** text: tokenizers, chat templates, and text data for language models. */

export type { ChatMessage, ChatTemplateOptions } from "./chat/index.js";
export {
  loadTextData,
  type TextColumns,
  type TextData,
  type TextDataOptions,
  type TextFigures,
} from "./data/index.js";
export { exceededLimit, JsonField, type JsonLimits, parseJson } from "./json-field.js";
export {
  ByteTokenizer,
  type ByteTokenizerOptions,
  type DecodeOptions,
  DecodeStream,
  type EncodeBatchOptions,
  type EncodedBatch,
  type EncodeOptions,
  loadTokenizer,
  saveTokenizer,
  Tokenizer,
  type TokenizerFiles,
} from "./tokenizer/index.js";
