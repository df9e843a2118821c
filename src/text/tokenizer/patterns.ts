/**
 * Patterns of a tokenizer.json: a literal string, or a regular expression in Oniguruma's syntax, which `@huggingface/tokenizers` rewrites
 * for JavaScript.
 */

import { HoldfastError } from "../../errors/index.js";
import type { JsonField } from "../json-field.js";
import { tokenizersPackage } from "../packages.js";

const maxPatternLength = 16_384;

/** Compiles `{ "String": … }` or `{ "Regex": … }`, to find all matches in code points. */
export function readPattern(field: JsonField): RegExp {
  const literal = field.get("String");
  if (!literal.isAbsent) return new RegExp(escapePattern(literal.string(maxPatternLength)), "gu");
  const source = field.get("Regex").string(maxPatternLength);
  try {
    const { SplitPreTokenizer } = tokenizersPackage();
    const split = new SplitPreTokenizer({
      type: "Split",
      pattern: { Regex: source },
      behavior: "Isolated",
      invert: false,
    });
    if (split.pattern) return split.pattern;
    throw new SyntaxError("the pattern is empty");
  } catch (cause) {
    const why = cause instanceof Error ? cause.message.slice(0, 160) : String(cause);
    throw new HoldfastError(
      "UNSUPPORTED",
      `${field.file}: the regular expression at ${field.path} can't be used in JavaScript: ${why}. Use a tokenizer with another pattern.`,
      { cause },
    );
  }
}

export function escapePattern(text: string): string {
  return text.replace(/[.*+?^${}()|[\]\\/]/g, "\\$&");
}
