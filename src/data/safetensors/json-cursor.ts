/**
 * A JSON reader that checks each value against the kind expected at its position. `JSON.parse` would silently keep the
 * last of two equal names, build every value that a hostile header nests or repeats, and read 1e3 as a whole number.
 * Here the first invalid token is rejected before anything is built for it.
 */

import { dimensionLimit, isUtf8Text, nameLimit } from "./format.js";
import { badFile, quote } from "./rejection.js";

/** Matches possible numbers, which are validated afterwards. */
const numberLike = /[-+.0-9A-Za-z]{1,40}/y;
const wholeNumber = /^(?:0|[1-9][0-9]*)$/;
/** Whole numbers of so many digits are safe integers. */
const safeDigits = 15;

const tab = 0x09;
const lineFeed = 0x0a;
const carriageReturn = 0x0d;
const space = 0x20;
const quotationMark = 0x22;
const zero = 0x30;
const backslash = 0x5c;

export class JsonCursor {
  readonly #text: string;
  #at = 0;
  readonly #counts: number[] = [];
  /** Names the item that is being read, for errors. */
  subject: () => string;

  constructor(text: string, subject: () => string) {
    this.#text = text;
    this.subject = subject;
  }

  /** Reads an object; `readMember` gets each key and reads its value. Rejects a duplicate key. */
  object(readMember: (key: string) => void): void {
    this.#take("{");
    if (this.#skip("}")) return;
    const keys = new Set<string>();
    do {
      const key = this.string();
      if (keys.has(key)) throw this.rejection(`a second ${quote(key)}`, "a unique name");
      if (keys.size === nameLimit) throw this.rejection("one name more", `at most ${nameLimit}`);
      keys.add(key);
      this.#take(":");
      readMember(key);
    } while (this.#skip(","));
    this.#take("}");
  }

  /** Reads an object with these keys, or some of them. Rejects others, and a duplicate. */
  fields<Name extends string>(names: readonly Name[], readField: (name: Name) => void): void {
    this.#take("{");
    if (this.#skip("}")) return;
    let found = 0;
    do {
      const index = this.#key(names);
      const name = names[index];
      if (name === undefined) {
        const expected = `${names.slice(0, -1).join(", ")} or ${names.at(-1)}`;
        throw this.rejection(`the field ${quote(this.string())}`, expected);
      }
      if (found & (1 << index)) throw this.rejection(`a second ${quote(name)}`, "a unique name");
      found |= 1 << index;
      this.#take(":");
      readField(name);
    } while (this.#skip(","));
    this.#take("}");
  }

  /** Reads a list of whole numbers. */
  counts(): number[] {
    this.#take("[");
    if (this.#skip("]")) return [];
    // An array that grows keeps space for sixteen more items: a copy has the space that it needs.
    const counts = this.#counts;
    let length = 0;
    do {
      if (length === dimensionLimit) throw this.rejection("one number more", `at most ${dimensionLimit}`);
      counts[length++] = this.#count();
    } while (this.#skip(","));
    this.#take("]");
    return counts.slice(0, length);
  }

  string(): string {
    if (this.#peek() !== '"') throw this.rejection(this.#found(), "a text in quotes");
    const token = this.#text.slice(this.#at, this.#closingQuote() + 1);
    let text: string;
    try {
      text = JSON.parse(token) as string;
    } catch (cause) {
      throw this.rejection(
        `the text ${quote(token)}`,
        "a text without control characters or unknown escapes",
        cause,
      );
    }
    // UTF-8 has no surrogates: only an escape can be half a pair.
    if (token.includes("\\u") && !isUtf8Text(text))
      throw this.rejection(`the text ${quote(token)}`, "whole characters");
    this.#at += token.length;
    return text;
  }

  /** Rejects anything but white space after the value. */
  end(): void {
    if (this.#peek() !== undefined) throw this.rejection(this.#found(), "nothing more");
  }

  rejection(found: string, expected: string, cause?: unknown): Error {
    const message = `In the header, character ${this.#at}, in ${this.subject()}: found ${found}, expected ${expected}.`;
    return badFile(message, { character: this.#at }, cause);
  }

  /** Reads a key; the index in `names`, or −1 for another name, which is not taken. */
  #key(names: readonly string[]): number {
    this.#peek();
    const start = this.#at + 1;
    const index = names.findIndex(
      (name) =>
        this.#text.charCodeAt(start + name.length) === quotationMark && this.#text.startsWith(name, start),
    );
    if (index >= 0 && this.#text.charCodeAt(this.#at) === quotationMark) {
      this.#at = start + (names[index]?.length ?? 0) + 1;
      return index;
    }
    // Another name, or a spelling with escapes.
    const at = this.#at;
    const other = names.indexOf(this.string());
    if (other < 0) this.#at = at;
    return other;
  }

  /** Reads a whole number, 0 or more, that a double represents exactly. */
  #count(): number {
    this.#peek();
    const start = this.#at;
    let end = start;
    let value = 0;
    for (; end <= start + safeDigits; end++) {
      const digit = this.#text.charCodeAt(end) - zero;
      if (!(digit >= 0 && digit <= 9)) break;
      value = value * 10 + digit;
    }
    const next = this.#text[end];
    const isWhole = next === "," || next === "]";
    const isShort = end > start && end <= start + safeDigits;
    const hasLeadingZero = end > start + 1 && this.#text[start] === "0";
    if (!isWhole || !isShort || hasLeadingZero) return this.#anyCount();
    this.#at = end;
    return value;
  }

  /** The same for any spelling. */
  #anyCount(): number {
    numberLike.lastIndex = this.#at;
    const token = numberLike.exec(this.#text)?.[0];
    if (token === undefined) throw this.rejection(this.#found(), "a whole number");
    const value = Number(token);
    if (!wholeNumber.test(token) || !Number.isSafeInteger(value)) {
      throw this.rejection(token, `a whole number from 0 to ${Number.MAX_SAFE_INTEGER}`);
    }
    this.#at += token.length;
    return value;
  }

  /** The next non-space character; undefined at the end. */
  #peek(): string | undefined {
    for (;;) {
      const code = this.#text.charCodeAt(this.#at);
      const isSpace = code === space || code === lineFeed || code === carriageReturn || code === tab;
      if (!isSpace) return this.#text[this.#at];
      this.#at++;
    }
  }

  #skip(character: string): boolean {
    const isNext = this.#peek() === character;
    if (isNext) this.#at++;
    return isNext;
  }

  #take(character: string): void {
    if (!this.#skip(character)) throw this.rejection(this.#found(), `"${character}"`);
  }

  #found(): string {
    const rest = this.#text.slice(this.#at, this.#at + 20);
    return rest === "" ? "the end of the header" : quote(rest);
  }

  /** The end of the text that starts here. A regular expression would overflow the stack on a text of megabytes. */
  #closingQuote(): number {
    for (let end = this.#at + 1; end < this.#text.length; end++) {
      const code = this.#text.charCodeAt(end);
      if (code === quotationMark) return end;
      if (code === backslash) end++;
    }
    throw this.rejection(this.#found(), "a closing quote");
  }
}
