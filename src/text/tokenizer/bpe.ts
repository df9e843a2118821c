/** Byte-pair encoding: a word's characters are merged pair by pair, by the rank of the merge, then from the left. */

import type { JsonField } from "../json-field.js";
import type { TokenModel } from "./model.js";
import { PairTable } from "./pair-table.js";
import { readVocabulary } from "./vocabulary.js";

const maxCachedWords = 65_536;
const maxCachedLength = 64;
/** Longer words are merged with a heap. */
const maxScannedLength = 48;

interface Bpe {
  readonly ids: ReadonlyMap<string, number>;
  /** The rank of the merge of two ids. */
  readonly ranks: PairTable;
  /** The id that the merge of a rank makes. */
  readonly merged: Int32Array;
  readonly unknown: number | undefined;
  readonly isUnknownFused: boolean;
  readonly hasByteFallback: boolean;
  readonly prefix: string;
  readonly suffix: string;
  readonly isWholeFirst: boolean;
}

const encoder = new TextEncoder();

export function readBpe(field: JsonField): TokenModel {
  const vocabulary = readVocabulary(field.get("vocab"));
  const { ids } = vocabulary;
  const dropout = field.get("dropout");
  if (!dropout.isAbsent && dropout.number() !== 0)
    throw dropout.unsupported("dropout of merges", 'Set "dropout" to null to encode without it.');
  const unknownToken = field.get("unk_token").optionalString();
  const prefix = field.get("continuing_subword_prefix").optionalString(64) ?? "";
  const unknown = unknownToken === undefined ? undefined : ids.get(unknownToken);
  if (unknownToken !== undefined && unknown === undefined)
    throw field.get("unk_token").wrong("a token of the vocabulary");
  const bpe: Bpe = {
    ids,
    ...readMerges(field.get("merges"), ids, prefix.length),
    unknown,
    isUnknownFused: field.get("fuse_unk").boolean(false),
    hasByteFallback: field.get("byte_fallback").boolean(false),
    prefix,
    suffix: field.get("end_of_word_suffix").optionalString(64) ?? "",
    isWholeFirst: field.get("ignore_merges").boolean(false),
  };
  const cache = new Map<string, readonly number[]>();
  return {
    ...vocabulary,
    encodeWord(word) {
      const known = cache.get(word);
      if (known) return known;
      const encoded = encodeWord(bpe, word);
      if (word.length > maxCachedLength) return encoded;
      if (cache.size >= maxCachedWords) cache.clear();
      cache.set(word, encoded);
      return encoded;
    },
  };
}

/** Merges are written as "a b", or as ["a", "b"] where a token may contain a space. */
function readMerges(
  field: JsonField,
  ids: ReadonlyMap<string, number>,
  prefixLength: number,
): Pick<Bpe, "ranks" | "merged"> {
  const list = field.list();
  const ranks = new PairTable(list.length);
  const merged = new Int32Array(list.length);
  for (const [rank, merge] of list.entries()) {
    const pair: unknown = typeof merge === "string" ? merge.split(" ") : merge;
    const [left, right] = Array.isArray(pair) && pair.length === 2 ? (pair as unknown[]) : [];
    const [first, second] = [ids.get(left as string), ids.get(right as string)];
    const whole = ids.get(`${left}${String(right).slice(prefixLength)}`);
    if (first === undefined || second === undefined || whole === undefined)
      throw field.item(merge, rank).wrong("two tokens of the vocabulary that make a third");
    ranks.set(first, second, rank);
    merged[rank] = whole;
  }
  return { ranks, merged };
}

function encodeWord(bpe: Bpe, word: string): readonly number[] {
  if (bpe.isWholeFirst) {
    const whole = bpe.ids.get(word);
    if (whole !== undefined) return [whole];
  }
  const symbols = symbolsOf(bpe, word);
  if (symbols.length < 2 || bpe.merged.length === 0) return symbols;
  return symbols.length <= maxScannedLength ? mergeByScan(bpe, symbols) : mergeByHeap(bpe, symbols);
}

/** The ids of a word's characters, before any merge. */
function symbolsOf(bpe: Bpe, word: string): number[] {
  const { ids, prefix, suffix, unknown } = bpe;
  const symbols: number[] = [];
  let hasUnknown = false;
  let end = 0;
  for (const character of word) {
    const isFirst = end === 0;
    end += character.length;
    const start = isFirst ? character : prefix + character;
    const symbol = end === word.length ? start + suffix : start;
    const id = ids.get(symbol);
    if (id !== undefined) {
      if (hasUnknown && unknown !== undefined) symbols.push(unknown);
      hasUnknown = false;
      symbols.push(id);
      continue;
    }
    const bytes = bpe.hasByteFallback ? byteIds(ids, symbol) : undefined;
    if (bytes) {
      symbols.push(...bytes);
      continue;
    }
    if (unknown === undefined) continue;
    if (hasUnknown && !bpe.isUnknownFused) symbols.push(unknown);
    hasUnknown = true;
  }
  if (hasUnknown && unknown !== undefined) symbols.push(unknown);
  return symbols;
}

/** The ids of `<0x..>` tokens for a text's bytes; undefined if one is missing. */
export function byteIds(ids: ReadonlyMap<string, number>, text: string): readonly number[] | undefined {
  const found: number[] = [];
  for (const byte of encoder.encode(text)) {
    const id = ids.get(`<0x${byte.toString(16).toUpperCase().padStart(2, "0")}>`);
    if (id === undefined) return undefined;
    found.push(id);
  }
  return found;
}

function mergeByScan({ ranks, merged }: Bpe, symbols: number[]): readonly number[] {
  for (;;) {
    let [best, at] = [Number.POSITIVE_INFINITY, -1];
    for (let index = 0; index + 1 < symbols.length; index++) {
      const rank = ranks.get(symbols[index] ?? 0, symbols[index + 1] ?? 0);
      if (rank >= 0 && rank < best) [best, at] = [rank, index];
    }
    if (at < 0) return symbols;
    symbols.splice(at, 2, merged[best] ?? 0);
  }
}

/** The same merges in O(n log n): a linked list of symbols, and a heap of pairs by rank, then by position. */
function mergeByHeap({ ranks, merged }: Bpe, symbols: readonly number[]): readonly number[] {
  const count = symbols.length;
  const ids = Int32Array.from(symbols);
  const next = Int32Array.from(symbols, (_, index) => (index + 1 < count ? index + 1 : -1));
  const previous = Int32Array.from(symbols, (_, index) => index - 1);
  const heap = new PairHeap();
  const offer = (left: number): void => {
    const right = left < 0 ? -1 : (next[left] ?? -1);
    if (right < 0) return;
    const rank = ranks.get(ids[left] ?? 0, ids[right] ?? 0);
    if (rank >= 0) heap.push(rank * positions + left);
  };
  for (let index = 0; index < count; index++) offer(index);
  for (let key = heap.pop(); key !== undefined; key = heap.pop()) {
    const left = key % positions;
    const rank = (key - left) / positions;
    const right = next[left] ?? -1;
    // An entry is stale if one of its symbols has changed or gone since.
    if (ids[left] === -1 || right < 0 || ranks.get(ids[left] ?? 0, ids[right] ?? 0) !== rank) continue;
    ids[left] = merged[rank] ?? 0;
    ids[right] = -1;
    const after = next[right] ?? -1;
    next[left] = after;
    if (after >= 0) previous[after] = left;
    offer(previous[left] ?? -1);
    offer(left);
  }
  return Array.from(ids.filter((id) => id >= 0));
}

/** A key is rank · positions + position, and stays below 2^53. */
const positions = 2 ** 30;

/** A binary heap of numbers, the smallest first. */
class PairHeap {
  readonly #keys: number[] = [];

  push(key: number): void {
    const keys = this.#keys;
    let at = keys.length;
    keys.push(key);
    while (at > 0) {
      const parent = (at - 1) >> 1;
      const above = keys[parent] ?? 0;
      if (above <= key) break;
      keys[at] = above;
      at = parent;
    }
    keys[at] = key;
  }

  pop(): number | undefined {
    const keys = this.#keys;
    const [top] = keys;
    const last = keys.pop();
    if (last === undefined || keys.length === 0) return top;
    let at = 0;
    for (;;) {
      const left = 2 * at + 1;
      if (left >= keys.length) break;
      const right = left + 1;
      const child = right < keys.length && (keys[right] ?? 0) < (keys[left] ?? 0) ? right : left;
      const below = keys[child] ?? 0;
      if (below >= last) break;
      keys[at] = below;
      at = child;
    }
    keys[at] = last;
    return top;
  }
}
