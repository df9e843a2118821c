/** The model of a tokenizer: encodes one word at a time. */

import type { Vocabulary } from "./vocabulary.js";

export interface TokenModel extends Vocabulary {
  /** The ids of a word from the pre-tokenizer. */
  encodeWord(word: string): readonly number[];
}
