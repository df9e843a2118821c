/** A limit of the texts that steps of a tokenizer.json make: steps of a hostile file could double a text again and again. */

import { HoldfastError } from "../../errors/index.js";
import type { JsonField } from "../json-field.js";

/** A text may become longer, but not by orders of magnitude. */
const maxGrowth = 64;

/** Returns a check of the length after each step, for a text of this length. */
export function growthLimit(field: JsonField, from: number): (length: number) => void {
  const max = (from + 64) * maxGrowth;
  return (length) => {
    if (length <= max) return;
    throw new HoldfastError(
      "BAD_FILE",
      `${field.file}: the ${field.path} makes ${length} characters of ${from}; the maximum is ${max}. Use another tokenizer.`,
      { numbers: { file: field.file, field: field.path, from, length } },
    );
  };
}

export function totalLength(texts: readonly string[]): number {
  let total = 0;
  for (const { length } of texts) total += length;
  return total;
}
