/** tokenizer: reads tokenizers of model folders, and encodes and decodes text as the `tokenizers` package does. */

export { ByteTokenizer, type ByteTokenizerOptions } from "./byte-tokenizer.js";
export { DecodeStream } from "./decode-stream.js";
export { loadTokenizer, saveTokenizer } from "./load.js";
export {
  type DecodeOptions,
  type EncodeBatchOptions,
  type EncodedBatch,
  type EncodeOptions,
  Tokenizer,
  type TokenizerFiles,
} from "./tokenizer.js";
