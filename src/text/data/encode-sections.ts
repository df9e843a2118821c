/**
 * Encodes a text that has borders, such as the start of an answer, and finds the token that each border is before. Where a token would
 * cross a border, the text is encoded in two parts: a model that answers a prompt sees the prompt's tokens alone.
 */

import type { Tokenizer } from "../tokenizer/index.js";

export interface EncodedSections {
  readonly ids: readonly number[];
  /** For each border, the index of the first token after it. */
  readonly indices: readonly number[];
}

/** Encodes a text without special tokens around it. `borders` are positions in the text, in ascending order. */
export function encodeSections(
  tokenizer: Tokenizer,
  text: string,
  borders: readonly number[],
): EncodedSections {
  const encode = (part: string): Int32Array => tokenizer.encode(part, { addSpecialTokens: false });
  const whole = encode(text);
  if (borders.length === 0) return { ids: [...whole], indices: [] };

  // Tokens do not cross borders next to special tokens, which is the usual case.
  const parts = [0, ...borders].map((start, index) =>
    encode(text.slice(start, borders[index] ?? text.length)),
  );
  const joined = parts.flatMap((part) => [...part]);
  if (joined.length === whole.length && startsWith(whole, joined)) {
    let length = 0;
    return { ids: joined, indices: parts.slice(0, -1).map((part) => (length += part.length)) };
  }

  const ids: number[] = [];
  const indices: number[] = [];
  let start = 0;
  let rest: ArrayLike<number> = whole;
  const encodeFrom = (end: number): ArrayLike<number> =>
    start === 0 ? encode(text.slice(0, end)) : encodeAfterText(encode, text.slice(start, end));
  for (const border of borders) {
    const head = encodeFrom(border);
    indices.push(ids.length + head.length);
    if (startsWith(rest, head)) continue;
    for (const id of Array.from(head)) ids.push(id);
    start = border;
    rest = encodeFrom(text.length);
  }
  for (const id of Array.from(rest)) ids.push(id);
  return { ids, indices };
}

/** Encodes a text that follows another one: without the space that some tokenizers put before a text. */
function encodeAfterText(encode: (part: string) => Int32Array, part: string): ArrayLike<number> {
  const [before, both] = [encode("\n"), encode(`\n${part}`)];
  return startsWith(both, before) ? both.subarray(before.length) : encode(part);
}

function startsWith(ids: ArrayLike<number>, beginning: ArrayLike<number>): boolean {
  if (beginning.length > ids.length) return false;
  for (let index = 0; index < beginning.length; index++) if (ids[index] !== beginning[index]) return false;
  return true;
}
