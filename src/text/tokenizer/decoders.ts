/** Decoders of a tokenizer.json: they make text of tokens, as the `tokenizers` package does. */

import type { JsonField } from "../json-field.js";
import { bytesOfToken } from "./byte-alphabet.js";
import { growthLimit, totalLength } from "./growth.js";
import { escapePattern, readPattern } from "./patterns.js";
import { readPrependScheme } from "./pre-tokenizers.js";

/** A list of tokens becomes a list of texts, which are joined in the end. */
export type Decoder = (tokens: readonly string[]) => readonly string[];

const maxSteps = 64;

export function readDecoder(field: JsonField): Decoder | undefined {
  if (field.isAbsent) return undefined;
  const steps = readSteps(field, 0);
  return (tokens) => {
    const check = growthLimit(field, totalLength(tokens));
    let texts = tokens;
    for (const step of steps) {
      texts = step(texts);
      check(totalLength(texts));
    }
    return texts;
  };
}

function readSteps(field: JsonField, depth: number): readonly Decoder[] {
  const type = field.get("type").string();
  if (type !== "Sequence") return [readStep(field, type)];
  if (depth > 8) throw field.wrong("a sequence of at most 8 levels");
  const steps = field.get("decoders").items(maxSteps);
  return steps.flatMap((step) => readSteps(step, depth + 1));
}

function readStep(field: JsonField, type: string): Decoder {
  switch (type) {
    case "ByteLevel":
      return (tokens) => [utf8.decode(Uint8Array.from(tokens.flatMap((token) => [...bytesOfToken(token)])))];
    case "ByteFallback":
      return joinByteTokens;
    case "Fuse":
      return (tokens) => [tokens.join("")];
    case "Replace": {
      const pattern = readPattern(field.get("pattern"));
      const content = field.get("content").string(1024);
      return (tokens) => tokens.map((token) => token.replace(pattern, () => content));
    }
    case "Strip":
      return readStrip(field);
    case "Metaspace":
      return readMetaspace(field);
    case "WordPiece":
      return readWordPiece(field);
    case "BPEDecoder": {
      const suffix = field.get("suffix").optionalString(64) ?? "</w>";
      return (tokens) =>
        tokens.map((token, index) => token.replaceAll(suffix, index + 1 === tokens.length ? "" : " "));
    }
    default:
      throw field.unsupported(
        `the decoder "${type.slice(0, 40)}"`,
        "Use a tokenizer that is made of other decoders.",
      );
  }
}

const utf8 = new TextDecoder("utf-8", { ignoreBOM: true });
const strictUtf8 = new TextDecoder("utf-8", { ignoreBOM: true, fatal: true });

/** `<0x..>` tokens in a row become their text; if they are not UTF-8, each becomes a replacement character. */
function joinByteTokens(tokens: readonly string[]): readonly string[] {
  const texts: string[] = [];
  let bytes: number[] = [];
  const flush = (): void => {
    if (bytes.length === 0) return;
    try {
      texts.push(strictUtf8.decode(Uint8Array.from(bytes)));
    } catch {
      for (const _ of bytes) texts.push("\ufffd");
    }
    bytes = [];
  };
  for (const token of tokens) {
    const hex = /^<0x([0-9A-Fa-f]{2})>$/.exec(token)?.[1];
    if (hex !== undefined) {
      bytes.push(Number.parseInt(hex, 16));
      continue;
    }
    flush();
    texts.push(token);
  }
  flush();
  return texts;
}

function readStrip(field: JsonField): Decoder {
  const content = field.get("content").string(2);
  const [start, stop] = [field.get("start").whole(0, 1024), field.get("stop").whole(0, 1024)];
  const escaped = escapePattern(content);
  const [left, right] = [
    new RegExp(`^(?:${escaped}){0,${start}}`, "u"),
    new RegExp(`(?:${escaped}){0,${stop}}$`, "u"),
  ];
  return (tokens) =>
    tokens.map((token) => {
      const rest = start > 0 ? token.replace(left, "") : token;
      return stop > 0 ? rest.replace(right, "") : rest;
    });
}

function readMetaspace(field: JsonField): Decoder {
  const replacement = field.get("replacement").optionalString(2) ?? "▁";
  const isStripped = readPrependScheme(field) !== "never";
  return (tokens) =>
    tokens.map((token, index) => token.replaceAll(replacement, index === 0 && isStripped ? "" : " "));
}

function readWordPiece(field: JsonField): Decoder {
  const prefix = field.get("prefix").optionalString(64) ?? "##";
  const isCleaned = field.get("cleanup").boolean(true);
  return (tokens) =>
    tokens.map((token, index) => {
      const isContinued = index > 0 && prefix !== "" && token.startsWith(prefix);
      const text = isContinued ? token.slice(prefix.length) : index > 0 ? ` ${token}` : token;
      return isCleaned ? cleanUp(text) : text;
    });
}

/** Removes spaces before punctuation and English contractions. */
function cleanUp(text: string): string {
  return text
    .replaceAll(" .", ".")
    .replaceAll(" ?", "?")
    .replaceAll(" !", "!")
    .replaceAll(" ,", ",")
    .replaceAll(" ' ", "'")
    .replaceAll(" n't", "n't")
    .replaceAll(" 'm", "'m")
    .replaceAll(" do not", " don't")
    .replaceAll(" 's", "'s")
    .replaceAll(" 've", "'ve")
    .replaceAll(" 're", "'re");
}
