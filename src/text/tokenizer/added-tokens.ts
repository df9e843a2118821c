/** Tokens that a text is split at before the model sees it: special tokens, and words that were added to a vocabulary. */

import type { JsonField } from "../json-field.js";
import type { Normalizer } from "./normalizers.js";
import { Trie } from "./trie.js";
import { maxIds, maxTokenLength } from "./vocabulary.js";

export interface AddedToken {
  readonly id: number;
  readonly content: string;
  /** Only as a whole word. */
  readonly isSingleWord: boolean;
  /** Takes the white space before it, and after it. */
  readonly takesLeft: boolean;
  readonly takesRight: boolean;
  /** Looked for in the normalized text. */
  readonly isNormalized: boolean;
  readonly isSpecial: boolean;
}

/** A part of a text: an added token's id, or text for the model. */
export interface Section {
  readonly text: string;
  readonly id: number | undefined;
  readonly isStart: boolean;
}

export function readAddedTokens(field: JsonField): readonly AddedToken[] {
  if (field.isAbsent) return [];
  return field
    .items(maxIds)
    .map(readAddedToken)
    .filter(({ content }) => content !== "");
}

function readAddedToken(field: JsonField): AddedToken {
  const isSpecial = field.get("special").boolean(false);
  return {
    id: field.get("id").whole(0, maxIds - 1),
    content: field.get("content").string(maxTokenLength),
    isSingleWord: field.get("single_word").boolean(false),
    takesLeft: field.get("lstrip").boolean(false),
    takesRight: field.get("rstrip").boolean(false),
    isNormalized: field.get("normalized").boolean(!isSpecial),
    isSpecial,
  };
}

/** Splits a text at its added tokens, and normalizes the rest. */
export class AddedTokenSplitter {
  readonly #normalize: Normalizer | undefined;
  readonly #byId: ReadonlyMap<number, AddedToken>;
  readonly #raw: Trie | undefined;
  readonly #normalized: Trie | undefined;

  /** `file`: for errors. */
  constructor(file: string, tokens: readonly AddedToken[], normalize: Normalizer | undefined) {
    this.#normalize = normalize;
    this.#byId = new Map(tokens.map((token) => [token.id, token]));
    const isRaw = ({ isNormalized }: AddedToken): boolean => !(isNormalized && normalize);
    this.#raw = trieOf(file, tokens.filter(isRaw), (content) => content);
    this.#normalized = trieOf(
      file,
      tokens.filter((token) => !isRaw(token)),
      (content) => normalize?.(content) ?? content,
    );
  }

  sections(text: string): readonly Section[] {
    const normalize = this.#normalize ?? ((raw) => raw);
    return this.#split(text, this.#raw, true).flatMap((section) =>
      section.id === undefined
        ? this.#split(normalize(section.text), this.#normalized, section.isStart)
        : [section],
    );
  }

  #split(text: string, trie: Trie | undefined, isStart: boolean): readonly Section[] {
    if (!trie) return text === "" ? [] : [{ text, id: undefined, isStart }];
    const sections: Section[] = [];
    let done = 0;
    const add = (start: number, end: number, id: number | undefined): void => {
      if (end > start) sections.push({ text: text.slice(start, end), id, isStart: isStart && start === 0 });
    };
    for (let at = 0; at < text.length; ) {
      let [matchEnd, matchId] = [0, -1];
      trie.eachPrefix(text, at, (end, id) => {
        [matchEnd, matchId] = [end, id];
      });
      const token = this.#byId.get(matchId);
      if (!token) {
        at += 1;
        continue;
      }
      const isRejected = token.isSingleWord && !standsAlone(text, at, matchEnd);
      if (!isRejected) {
        const start = token.takesLeft ? Math.max(done, spaceStart(text, at)) : at;
        const end = token.takesRight ? spaceEnd(text, matchEnd) : matchEnd;
        add(done, start, undefined);
        add(start, end, token.id);
        done = end;
      }
      at = Math.max(matchEnd, done);
    }
    add(done, text.length, undefined);
    return sections;
  }
}

function trieOf(
  file: string,
  tokens: readonly AddedToken[],
  contentOf: (content: string) => string,
): Trie | undefined {
  if (tokens.length === 0) return undefined;
  const trie = new Trie(file);
  for (const { content, id } of tokens) trie.add(contentOf(content), id);
  return trie;
}

const wordCharacter = /[\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\p{Join_Control}]/u;
const space = /\p{White_Space}/u;

/** True if no word continues at either end. */
function standsAlone(text: string, start: number, end: number): boolean {
  const before = text.slice(Math.max(0, start - 2), start);
  const after = text.slice(end, end + 2);
  const last = [...before].at(-1) ?? "";
  const [first = ""] = after;
  return !wordCharacter.test(last) && !wordCharacter.test(first);
}

function spaceStart(text: string, from: number): number {
  let start = from;
  while (start > 0 && space.test(text[start - 1] ?? "")) start -= 1;
  return start;
}

function spaceEnd(text: string, from: number): number {
  let end = from;
  while (end < text.length && space.test(text[end] ?? "")) end += 1;
  return end;
}
