/** How much text a template's values would become. Checked before the text is made, because it could fill the memory. */

import type { TemplateValue } from "../packages.js";

export interface WrittenSize {
  /** Characters of strings, names and numbers. */
  readonly length: number;
  /** Items of lists, entries of maps, and the value itself. */
  readonly values: number;
  readonly depth: number;
}

/** Characters of anything that is no string, list or map. */
const plainLength = 8;

/**
 * The size of a value with all that is in it. A value that is in a list twice counts twice, as it is written twice: lists of lists may
 * double in size with each level, so counting ends above a limit.
 */
export function writtenSize(value: TemplateValue, limit: number): WrittenSize {
  let [length, values, depth] = [0, 1, 0];
  const open: { readonly value: unknown; readonly level: number }[] = [{ value: value.value, level: 1 }];
  for (let next = open.pop(); next; next = open.pop()) {
    const { value: inner, level } = next;
    depth = Math.max(depth, level);
    if (typeof inner === "string") length += inner.length;
    else if (Array.isArray(inner)) values += inner.length;
    else if (inner instanceof Map) values += inner.size;
    else length += plainLength;
    if (length + values > limit) break;
    if (Array.isArray(inner))
      for (const item of inner as TemplateValue[]) open.push({ value: item.value, level: level + 1 });
    else if (inner instanceof Map)
      for (const [key, item] of inner as Map<string, TemplateValue>) {
        length += key.length;
        open.push({ value: item.value, level: level + 1 });
      }
  }
  return { length, values, depth };
}

/** How often a part is in a text, without overlaps. An empty part is at every place. */
export function occurrences(text: string, part: string): number {
  if (part === "") return text.length + 1;
  let count = 0;
  for (let at = text.indexOf(part); at >= 0; at = text.indexOf(part, at + part.length)) count += 1;
  return count;
}

/** How many words a text has. */
export function wordCount(text: string): number {
  let count = 0;
  for (const _ of text.matchAll(/\S+/g)) count += 1;
  return count;
}
