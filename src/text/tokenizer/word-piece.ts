/** WordPiece, which takes the longest token from the left again and again, and WordLevel, which has a token for each whole word. */

import type { JsonField } from "../json-field.js";
import type { TokenModel } from "./model.js";
import { Trie } from "./trie.js";
import { readVocabulary } from "./vocabulary.js";

export function readWordPiece(field: JsonField): TokenModel {
  const vocabulary = readVocabulary(field.get("vocab"));
  const { ids } = vocabulary;
  const unknown = readUnknown(field, ids);
  const prefix = field.get("continuing_subword_prefix").optionalString(64) ?? "##";
  const length = field.get("max_input_chars_per_word");
  const maxLength = length.isAbsent ? 100 : length.whole(1, 1000);
  const [first, continued] = [new Trie(field.file), new Trie(field.file)];
  for (const [token, id] of ids) {
    first.add(token, id);
    if (token.startsWith(prefix)) continued.add(token.slice(prefix.length), id);
  }
  const encodeWord = (word: string): readonly number[] => {
    // A word has no more characters than UTF-16 units.
    if (word.length > maxLength && [...word].length > maxLength) return [unknown];
    const encoded: number[] = [];
    for (let start = 0; start < word.length; ) {
      let [end, id] = [start, -1];
      (start > 0 ? continued : first).eachPrefix(word, start, (tokenEnd, tokenId) => {
        if (!splitsCharacter(word, tokenEnd)) [end, id] = [tokenEnd, tokenId];
      });
      if (id < 0) return [unknown];
      encoded.push(id);
      start = end;
    }
    return encoded;
  };
  return { ...vocabulary, encodeWord };
}

/** True between the two units of a character. */
function splitsCharacter(text: string, at: number): boolean {
  return at < text.length && (text.codePointAt(at - 1) ?? 0) > 0xffff;
}

export function readWordLevel(field: JsonField): TokenModel {
  const vocabulary = readVocabulary(field.get("vocab"));
  const unknown = readUnknown(field, vocabulary.ids);
  return { ...vocabulary, encodeWord: (word) => [vocabulary.ids.get(word) ?? unknown] };
}

function readUnknown(field: JsonField, ids: ReadonlyMap<string, number>): number {
  const unknown = ids.get(field.get("unk_token").string());
  if (unknown === undefined) throw field.get("unk_token").wrong("a token of the vocabulary");
  return unknown;
}
