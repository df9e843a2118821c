/** Reads the model of a tokenizer.json by its type. */

import type { JsonField } from "../json-field.js";
import { readBpe } from "./bpe.js";
import type { TokenModel } from "./model.js";
import { readUnigram } from "./unigram.js";
import { readWordLevel, readWordPiece } from "./word-piece.js";

export function readModel(field: JsonField): TokenModel {
  switch (typeOf(field)) {
    case "BPE":
      return readBpe(field);
    case "WordPiece":
      return readWordPiece(field);
    case "WordLevel":
      return readWordLevel(field);
    case "Unigram":
      return readUnigram(field);
    default:
      throw field.get("type").wrong('"BPE", "WordPiece", "WordLevel" or "Unigram"');
  }
}

/** Older files have no type. */
function typeOf(field: JsonField): string {
  const type = field.get("type").optionalString(40);
  if (type !== undefined) return type;
  if (!field.get("merges").isAbsent) return "BPE";
  if (field.get("vocab").isList) return "Unigram";
  return field.get("continuing_subword_prefix").isAbsent ? "WordLevel" : "WordPiece";
}
