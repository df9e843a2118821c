/** WordPiece, which takes the longest token from the left again and again, and WordLevel, which has a token for each whole word. */

import type { JsonField } from "../json-field.js";
import type { TokenModel } from "./model.js";
import { readVocabulary } from "./vocabulary.js";

export function readWordPiece(field: JsonField): TokenModel {
  const vocabulary = readVocabulary(field.get("vocab"));
  const { ids } = vocabulary;
  const unknown = readUnknown(field, ids);
  const prefix = field.get("continuing_subword_prefix").optionalString(64) ?? "##";
  const length = field.get("max_input_chars_per_word");
  const maxLength = length.isAbsent ? 100 : length.whole(1, 1000);
  const encodeWord = (word: string): readonly number[] => {
    const characters = [...word];
    if (characters.length > maxLength) return [unknown];
    const encoded: number[] = [];
    for (let start = 0; start < characters.length; ) {
      let end = characters.length;
      let id: number | undefined;
      for (; end > start && id === undefined; end--) {
        const piece = characters.slice(start, end).join("");
        id = ids.get(start > 0 ? prefix + piece : piece);
        if (id !== undefined) break;
      }
      if (id === undefined) return [unknown];
      encoded.push(id);
      start = end;
    }
    return encoded;
  };
  return { ...vocabulary, encodeWord };
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
