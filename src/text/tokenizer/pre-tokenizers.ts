/** Pre-tokenizers of a tokenizer.json: they split a text into words, which the model then encodes one by one. */

import type { JsonField } from "../json-field.js";
import { toByteCharacters } from "./byte-alphabet.js";
import { growthLimit, totalLength } from "./growth.js";
import { escapePattern, readPattern } from "./patterns.js";
import { type SplitBehavior, splitBehaviors, splitText } from "./split.js";

/** `isStart`: the piece begins the whole text. */
export type PreTokenizer = (piece: string, isStart: boolean) => readonly string[];

const maxSteps = 64;

const whiteSpace = /\p{White_Space}/gu;
const punctuation = /[\p{P}!-/:-@[-`{-~]/gu;
const numeric = /\p{N}/gu;
/** The `\w` of Rust's regular expressions. */
const word = "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}\\p{Join_Control}";
const wordsAndOthers = new RegExp(`[${word}]+|[^${word}\\p{White_Space}]+`, "gu");
const gpt2 =
  /'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\p{White_Space}\p{L}\p{N}]+|\p{White_Space}+(?!\P{White_Space})|\p{White_Space}+/gu;

/** The pre-tokenizer of a field; undefined if it is null. */
export function readPreTokenizer(field: JsonField): PreTokenizer | undefined {
  if (field.isAbsent) return undefined;
  const steps = readSteps(field, 0);
  return (text, isStart) => {
    const check = growthLimit(field, text.length);
    let pieces: readonly string[] = [text];
    for (const step of steps) {
      const next: string[] = [];
      for (const [index, piece] of pieces.entries())
        for (const part of step(piece, isStart && index === 0)) if (part !== "") next.push(part);
      pieces = next;
      check(totalLength(pieces));
    }
    return pieces;
  };
}

function readSteps(field: JsonField, depth: number): readonly PreTokenizer[] {
  const type = field.get("type").string();
  if (type !== "Sequence") return [readStep(field, type)];
  if (depth > 8) throw field.wrong("a sequence of at most 8 levels");
  const steps = field.get("pretokenizers").items(maxSteps);
  return steps.flatMap((step) => readSteps(step, depth + 1));
}

function readStep(field: JsonField, type: string): PreTokenizer {
  switch (type) {
    case "ByteLevel":
      return readByteLevel(field);
    case "Whitespace":
      return (text) => text.match(wordsAndOthers) ?? [];
    case "WhitespaceSplit":
      return (text) => splitText(text, whiteSpace, "Removed");
    case "BertPreTokenizer":
      return (text) =>
        splitText(text, whiteSpace, "Removed").flatMap((part) => splitText(part, punctuation, "Isolated"));
    case "Metaspace":
      return readMetaspace(field);
    case "Split": {
      const pattern = readPattern(field.get("pattern"));
      const behavior = readBehavior(field.get("behavior"), undefined);
      const isInverted = field.get("invert").boolean(false);
      return (text) => splitText(text, pattern, behavior, isInverted);
    }
    case "Punctuation": {
      const behavior = readBehavior(field.get("behavior"), "Isolated");
      return (text) => splitText(text, punctuation, behavior);
    }
    case "Digits": {
      const behavior = field.get("individual_digits").boolean(false) ? "Isolated" : "Contiguous";
      return (text) => splitText(text, numeric, behavior);
    }
    case "CharDelimiterSplit": {
      const pattern = new RegExp(escapePattern(field.get("delimiter").string(2)), "gu");
      return (text) => splitText(text, pattern, "Removed");
    }
    default:
      throw field.unsupported(
        `the pre-tokenizer "${type.slice(0, 40)}"`,
        "Use a tokenizer that is made of other pre-tokenizers.",
      );
  }
}

function readByteLevel(field: JsonField): PreTokenizer {
  const hasPrefix = field.get("add_prefix_space").boolean(true);
  const isSplit = field.get("use_regex").boolean(true);
  return (text) => {
    const prefixed = hasPrefix && !text.startsWith(" ") ? ` ${text}` : text;
    const pieces = isSplit ? splitText(prefixed, gpt2, "Isolated") : [prefixed];
    return pieces.map(toByteCharacters);
  };
}

function readMetaspace(field: JsonField): PreTokenizer {
  const replacement = field.get("replacement").optionalString(2) ?? "▁";
  const scheme = readPrependScheme(field);
  const isSplit = field.get("split").boolean(true);
  const pattern = new RegExp(escapePattern(replacement), "gu");
  return (text, isStart) => {
    let replaced = text.replaceAll(" ", () => replacement);
    const isPrepended = scheme === "always" || (scheme === "first" && isStart);
    if (isPrepended && !replaced.startsWith(replacement)) replaced = replacement + replaced;
    return isSplit ? splitText(replaced, pattern, "MergedWithNext") : [replaced];
  };
}

/** When Metaspace puts its character before a text. Older files have `add_prefix_space`. */
export function readPrependScheme(field: JsonField): "always" | "first" | "never" {
  const scheme = field.get("prepend_scheme");
  const isPrefixed = field.get("add_prefix_space").boolean(true);
  const name = scheme.optionalString(10)?.toLowerCase() ?? (isPrefixed ? "always" : "never");
  if (!isPrefixed && name !== "never") return "never";
  if (name === "always" || name === "first" || name === "never") return name;
  throw scheme.wrong('"always", "first" or "never"');
}

function readBehavior(field: JsonField, absent: SplitBehavior | undefined): SplitBehavior {
  if (field.isAbsent && absent) return absent;
  const name = field.string(40).toLowerCase();
  const behavior = splitBehaviors.find((known) => known.toLowerCase() === name.replaceAll("_", ""));
  if (behavior) return behavior;
  throw field.wrong(`one of ${splitBehaviors.join(", ")}`);
}
