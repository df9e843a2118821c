/** The vocabulary of a model: tokens and their ids. */

import type { JsonField } from "../json-field.js";

/** Ids below this number. The largest vocabularies in use have about 260,000. */
export const maxIds = 1 << 22;

export const maxTokenLength = 8192;

export interface Vocabulary {
  readonly ids: ReadonlyMap<string, number>;
  /** The token of each id; undefined where there is none. */
  readonly tokens: readonly (string | undefined)[];
}

/** A vocabulary written as an object from tokens to ids. */
export function readVocabulary(field: JsonField): Vocabulary {
  const ids = new Map<string, number>();
  const tokens: (string | undefined)[] = [];
  for (const [token, id] of Object.entries(field.record())) {
    const isId = typeof id === "number" && Number.isInteger(id) && id >= 0 && id < maxIds;
    if (!isId || tokens[id] !== undefined || token.length > maxTokenLength) {
      const at = field.get(token);
      throw at.wrong(
        `an id from 0 to ${maxIds - 1} that no other token has, of a token of at most ${maxTokenLength} characters`,
      );
    }
    ids.set(token, id);
    while (tokens.length < id) tokens.push(undefined);
    tokens[id] = token;
  }
  return { ids, tokens };
}
