/** Unigram language models: the segmentation of a word with the highest sum of scores. */

import { HoldfastError } from "../../errors/index.js";
import type { JsonField } from "../json-field.js";
import { byteIds } from "./bpe.js";
import type { TokenModel } from "./model.js";
import { Trie } from "./trie.js";
import { maxIds, maxTokenLength } from "./vocabulary.js";

/** How much lower than the lowest score an unknown character's is. */
const unknownPenalty = 10;

export function readUnigram(field: JsonField): TokenModel {
  const pieces = field.get("vocab");
  const list = pieces.list(maxIds);
  const ids = new Map<string, number>();
  const tokens: string[] = [];
  const scores = new Float64Array(list.length);
  const trie = new Trie(field.file);
  for (const [id, entry] of list.entries()) {
    const [token, score] = Array.isArray(entry) && entry.length === 2 ? (entry as unknown[]) : [];
    if (typeof token !== "string" || typeof score !== "number" || token.length > maxTokenLength)
      throw pieces.item(entry, id).wrong("a token and its score");
    tokens.push(token);
    scores[id] = score;
    ids.set(token, id);
    trie.add(token, id);
  }
  const unknownId = field.get("unk_id");
  const unknown = unknownId.isAbsent ? undefined : unknownId.whole(0, tokens.length - 1);
  const hasByteFallback = field.get("byte_fallback").boolean(false);
  const unknownScore = scores.reduce((min, score) => Math.min(min, score), Infinity) - unknownPenalty;

  const idsOf = (piece: string): readonly number[] => {
    const id = ids.get(piece);
    if (id !== undefined) return [id];
    const bytes = hasByteFallback ? byteIds(ids, piece) : undefined;
    if (bytes) return bytes;
    if (unknown !== undefined) return [unknown];
    throw new HoldfastError(
      "BAD_ARGUMENT",
      `The tokenizer of ${field.file} has no token for the character ${JSON.stringify(piece.slice(0, 2))}, and no unknown token.`,
    );
  };

  return {
    ids,
    tokens,
    encodeWord(word) {
      const encoded: number[] = [];
      for (const piece of segment(word, { trie, scores, unknown, unknownScore }))
        encoded.push(...idsOf(piece));
      return encoded;
    },
  };
}

interface Lattice {
  readonly trie: Trie;
  readonly scores: Float64Array;
  readonly unknown: number | undefined;
  readonly unknownScore: number;
}

/** The best path. Of equal paths, the one whose last piece starts first. Unknown characters in a row are one piece. */
function segment(word: string, { trie, scores, unknown, unknownScore }: Lattice): readonly string[] {
  const size = word.length;
  const best = new Float64Array(size + 1);
  const startOf = new Int32Array(size + 1).fill(-1);
  const isUnknown = new Uint8Array(size + 1);
  const offer = (start: number, end: number, score: number, hasNoPiece: boolean): void => {
    const total = (best[start] ?? 0) + score;
    if (startOf[end] !== -1 && total <= (best[end] ?? 0)) return;
    best[end] = total;
    startOf[end] = start;
    isUnknown[end] = Number(hasNoPiece);
  };
  for (let start = 0; start < size; ) {
    const width = (word.codePointAt(start) ?? 0) > 0xffff ? 2 : 1;
    let hasSingle = false;
    trie.eachPrefix(word, start, (end, id) => {
      offer(start, end, scores[id] ?? 0, id === unknown);
      hasSingle ||= end === start + width;
    });
    if (!hasSingle) offer(start, start + width, unknownScore, true);
    start += width;
  }
  const pieces: string[] = [];
  let unknownEnd = -1;
  for (let end = size; end > 0; ) {
    const start = startOf[end] ?? 0;
    if (isUnknown[end] && unknown !== undefined) unknownEnd = Math.max(unknownEnd, end);
    else {
      if (unknownEnd >= 0) pieces.push(word.slice(end, unknownEnd));
      unknownEnd = -1;
      pieces.push(word.slice(start, end));
    }
    end = start;
  }
  if (unknownEnd >= 0) pieces.push(word.slice(0, unknownEnd));
  return pieces.reverse();
}
