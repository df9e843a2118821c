/**
 * A JSON reader that checks each value against the kind expected at its position. `JSON.parse` would silently keep the
 * last of two equal names, build every value that a hostile header nests or repeats, and read 1e3 as a whole number.
 * Here the first invalid token is rejected before anything is built for it, and only names and texts are decoded.
 */

import { isUtf8 } from "node:buffer";
import { countLimit, dimensionLimit, isUtf8Text, nameLimit, textLimit } from "./format.js";
import { badFile, quote, quotedLength } from "./rejection.js";

/** Matches possible numbers, which are validated afterwards. */
const numberLike = /^[-+.0-9A-Za-z]{1,40}/;
const wholeNumber = /^(?:0|[1-9][0-9]*)$/;
/** Whole numbers of so many digits are safe integers. */
const safeDigits = 15;
/** Bytes of the header that a message may show. */
const shownBytes = 20;

const code = (character: string): number => character.charCodeAt(0);
const [tab, lineFeed, carriageReturn, space] = [0x09, 0x0a, 0x0d, 0x20];
const [zero, quotationMark, backslash] = [code("0"), code('"'), code("\\")];
const [colon, comma] = [code(":"), code(",")];
const [openingBrace, closingBrace] = [code("{"), code("}")];
const [openingBracket, closingBracket] = [code("["), code("]")];

export class JsonCursor {
  readonly #bytes: Buffer;
  #at = 0;
  #textBytes = 0;
  #countsRead = 0;
  /** True if the last text is what its bytes are. */
  #isPlain = true;
  /** The last `repeatedString` of ASCII. */
  #repeated = "";
  readonly #counts: number[] = [];
  /** Names the item that is being read, for errors. */
  subject: () => string;

  /** Rejects bytes that are not UTF-8. */
  constructor(bytes: Uint8Array, subject: () => string) {
    if (!isUtf8(bytes)) throw badFile("The header is not text in UTF-8.", { length: bytes.length });
    this.#bytes = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.length);
    this.subject = subject;
  }

  /** Reads an object: `readMember` gets each key, reads its value, and keeps it in `members`. Rejects a duplicate key. */
  object(members: ReadonlyMap<string, unknown>, readMember: (key: string) => void): void {
    this.#take(openingBrace);
    if (this.#skip(closingBrace)) return;
    do {
      const key = this.string();
      if (members.has(key)) throw this.rejection(`a second ${quote(key)}`, "a unique name");
      if (members.size === nameLimit) throw this.rejection("one name more", `at most ${nameLimit}`);
      this.#take(colon);
      readMember(key);
    } while (this.#skip(comma));
    this.#take(closingBrace);
  }

  /** Reads an object with these keys, or some of them. Rejects others, and a duplicate. */
  fields<Name extends string>(names: readonly Name[], readField: (name: Name) => void): void {
    this.#take(openingBrace);
    if (this.#skip(closingBrace)) return;
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
      this.#take(colon);
      readField(name);
    } while (this.#skip(comma));
    this.#take(closingBrace);
  }

  /** Reads a list of whole numbers. */
  counts(): number[] {
    this.#take(openingBracket);
    if (this.#skip(closingBracket)) return [];
    // An array that grows keeps space for sixteen more items: a copy has the space that it needs.
    const counts = this.#counts;
    let length = 0;
    do {
      if (length === dimensionLimit) throw this.rejection("one number more", `at most ${dimensionLimit}`);
      counts[length++] = this.#count();
    } while (this.#skip(comma));
    this.#take(closingBracket);
    this.#countsRead += length;
    if (this.#countsRead > countLimit)
      throw this.rejection(`${this.#countsRead} numbers in shapes and data_offsets`, `at most ${countLimit}`);
    return counts.slice(0, length);
  }

  string(): string {
    if (this.#peek() !== quotationMark) throw this.rejection(this.#found(), "a text in quotes");
    const start = this.#at + 1;
    const end = this.#closingQuote(start);
    this.#textBytes += end - start;
    const text = this.#isPlain ? this.#decode(start, end) : this.#parseText(start, end);
    this.#at = end + 1;
    return text;
  }

  /** The same for one of few texts, such as a dtype: equal texts in a row are decoded once. */
  repeatedString(): string {
    if (this.#peek() === quotationMark && this.#isNext(this.#repeated, this.#at + 1)) {
      this.#at += this.#repeated.length + 2;
      return this.#repeated;
    }
    const start = this.#at + 1;
    const text = this.string();
    const isAscii = this.#isPlain && this.#at === start + text.length + 1;
    if (isAscii) this.#repeated = text;
    return text;
  }

  /** Rejects anything but white space after the value. */
  end(): void {
    if (this.#peek() !== undefined) throw this.rejection(this.#found(), "nothing more");
  }

  rejection(found: string, expected: string, cause?: unknown): Error {
    const message = `In the header, byte ${this.#at}, in ${this.subject()}: found ${found}, expected ${expected}.`;
    return badFile(message, { byte: this.#at }, cause);
  }

  /** Reads a key; the index in `names`, or −1 for another name, which is not taken. */
  #key(names: readonly string[]): number {
    const isText = this.#peek() === quotationMark;
    const start = this.#at + 1;
    for (const [index, name] of names.entries()) {
      if (!isText || !this.#isNext(name, start)) continue;
      this.#at = start + name.length + 1;
      return index;
    }
    // Another name, or a spelling with escapes.
    const at = this.#at;
    const other = names.indexOf(this.string());
    if (other < 0) this.#at = at;
    return other;
  }

  /** True if this text of ASCII and a closing quote are at `start`. */
  #isNext(text: string, start: number): boolean {
    for (let index = 0; index < text.length; index++)
      if (this.#bytes[start + index] !== text.charCodeAt(index)) return false;
    return this.#bytes[start + text.length] === quotationMark;
  }

  /** Reads a whole number, 0 or more, that a double represents exactly. */
  #count(): number {
    this.#peek();
    const start = this.#at;
    let end = start;
    let value = 0;
    for (; end <= start + safeDigits; end++) {
      const digit = (this.#bytes[end] ?? 0) - zero;
      if (!(digit >= 0 && digit <= 9)) break;
      value = value * 10 + digit;
    }
    const next = this.#bytes[end];
    const isWhole = next === comma || next === closingBracket;
    const isShort = end > start && end <= start + safeDigits;
    const hasLeadingZero = end > start + 1 && this.#bytes[start] === zero;
    if (!isWhole || !isShort || hasLeadingZero) return this.#anyCount();
    this.#at = end;
    return value;
  }

  /** The same for any spelling. */
  #anyCount(): number {
    const token = numberLike.exec(this.#decode(this.#at, this.#at + 40))?.[0];
    if (token === undefined) throw this.rejection(this.#found(), "a whole number");
    const value = Number(token);
    if (!wholeNumber.test(token) || !Number.isSafeInteger(value)) {
      throw this.rejection(token, `a whole number from 0 to ${Number.MAX_SAFE_INTEGER}`);
    }
    this.#at += token.length;
    return value;
  }

  /** The next byte that is no white space; undefined at the end. */
  #peek(): number | undefined {
    const bytes = this.#bytes;
    for (let at = this.#at; ; at++) {
      const byte = bytes[at];
      if (byte === space || byte === lineFeed || byte === carriageReturn || byte === tab) continue;
      this.#at = at;
      return byte;
    }
  }

  #skip(expected: number): boolean {
    const isNext = this.#peek() === expected;
    if (isNext) this.#at++;
    return isNext;
  }

  #take(expected: number): void {
    if (!this.#skip(expected)) throw this.rejection(this.#found(), `"${String.fromCharCode(expected)}"`);
  }

  #found(): string {
    return this.#at >= this.#bytes.length
      ? "the end of the header"
      : this.#shown(this.#at, this.#at + shownBytes);
  }

  /** The closing quote of the text that starts here. Notes whether the text is what its bytes are. */
  #closingQuote(start: number): number {
    const bytes = this.#bytes;
    const limit = Math.min(bytes.length, start + textLimit - this.#textBytes + 1);
    let isPlain = true;
    for (let end = start; end < limit; end++) {
      const byte = bytes[end] as number;
      if (byte === quotationMark) {
        this.#isPlain = isPlain;
        return end;
      }
      if (byte === backslash) end++;
      if (byte === backslash || byte < space) isPlain = false;
    }
    if (limit === bytes.length) throw this.rejection(this.#found(), "a closing quote");
    throw this.rejection("more text", `names and texts of at most ${textLimit} bytes in all`);
  }

  /** A text with escapes, or with bytes that no text may have. */
  #parseText(start: number, end: number): string {
    let text: string;
    try {
      text = JSON.parse(this.#decode(start - 1, end + 1)) as string;
    } catch (cause) {
      throw this.rejection(
        `the text ${this.#shown(start, end)}`,
        "a text without control characters or unknown escapes",
        cause,
      );
    }
    // UTF-8 has no surrogates: only an escape can be half a pair.
    if (!isUtf8Text(text)) throw this.rejection(`the text ${this.#shown(start, end)}`, "whole characters");
    return text;
  }

  #decode(start: number, end: number): string {
    return this.#bytes.toString("utf8", start, end);
  }

  /** The beginning of a text, for messages: whole characters. */
  #shown(start: number, end: number): string {
    let last = Math.min(end, start + 4 * quotedLength);
    while (last > start && last < this.#bytes.length && ((this.#bytes[last] ?? 0) & 0xc0) === 0x80) last--;
    return quote(this.#decode(start, last));
  }
}
