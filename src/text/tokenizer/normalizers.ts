/** Normalizers of a tokenizer.json: functions from text to text, with the meaning that the `tokenizers` package gives them. */

import type { JsonField } from "../json-field.js";
import { toByteCharacters } from "./byte-alphabet.js";
import { growthLimit } from "./growth.js";
import { readPattern } from "./patterns.js";

export type Normalizer = (text: string) => string;

const maxSteps = 64;
const maxReplacement = 1024;

/** The normalizer of a field; undefined if it is null. */
export function readNormalizer(field: JsonField): Normalizer | undefined {
  if (field.isAbsent) return undefined;
  const steps = readSteps(field, 0);
  return (text) => {
    const check = growthLimit(field, text.length);
    let normalized = text;
    for (const step of steps) {
      normalized = step(normalized);
      check(normalized.length);
    }
    return normalized;
  };
}

function readSteps(field: JsonField, depth: number): readonly Normalizer[] {
  const type = field.get("type").string();
  if (type !== "Sequence") return [readStep(field, type)];
  if (depth > 8) throw field.wrong("a sequence of at most 8 levels");
  const steps = field.get("normalizers").items(maxSteps);
  return steps.flatMap((step) => readSteps(step, depth + 1));
}

function readStep(field: JsonField, type: string): Normalizer {
  switch (type) {
    case "NFC":
    case "NFD":
    case "NFKC":
    case "NFKD":
      return (text) => text.normalize(type);
    case "Lowercase":
      return lowercase;
    case "StripAccents":
      return (text) => text.replace(/\p{M}/gu, "");
    case "Strip":
      return readStrip(field);
    case "Prepend": {
      const prefix = field.get("prepend").string(maxReplacement);
      return (text) => (text === "" ? text : prefix + text);
    }
    case "Replace": {
      const pattern = readPattern(field.get("pattern"));
      const content = field.get("content").string(maxReplacement);
      return (text) => text.replace(pattern, () => content);
    }
    case "ByteLevel":
      return toByteCharacters;
    case "BertNormalizer":
      return readBert(field);
    default:
      throw field.unsupported(
        `the normalizer "${type.slice(0, 40)}"`,
        "Use a tokenizer that is made of other normalizers.",
      );
  }
}

/** Each character by itself: a final sigma is not special, as in the `tokenizers` package. */
function lowercase(text: string): string {
  if (!/[\u03a3]/.test(text)) return text.toLowerCase();
  let lower = "";
  for (const character of text) lower += character.toLowerCase();
  return lower;
}

function readStrip(field: JsonField): Normalizer {
  const [isLeft, isRight] = [field.get("strip_left").boolean(true), field.get("strip_right").boolean(true)];
  return (text) => {
    const right = isRight ? text.replace(/\p{White_Space}+$/u, "") : text;
    return isLeft ? right.replace(/^\p{White_Space}+/u, "") : right;
  };
}

function readBert(field: JsonField): Normalizer {
  const isCleaned = field.get("clean_text").boolean(true);
  const isChinese = field.get("handle_chinese_chars").boolean(true);
  const isLower = field.get("lowercase").boolean(true);
  const isStripped = field.get("strip_accents").boolean(isLower);
  return (text) => {
    let normalized = text;
    if (isCleaned) normalized = cleanBert(normalized);
    if (isChinese) normalized = normalized.replace(chinese, " $& ");
    if (isStripped) normalized = normalized.normalize("NFD").replace(/\p{Mn}/gu, "");
    return isLower ? lowercase(normalized) : normalized;
  };
}

function cleanBert(text: string): string {
  return text.replace(/(?![\t\n\r])[\ufffd\p{Cc}\p{Cf}\p{Co}]/gu, "").replace(/\p{White_Space}/gu, " ");
}

const chinese =
  /[\u4e00-\u9fff\u3400-\u4dbf\u{20000}-\u{2a6df}\u{2a700}-\u{2b73f}\u{2b740}-\u{2b81f}\u{2b920}-\u{2ceaf}\uf900-\ufaff\u{2f800}-\u{2fa1f}]/gu;
