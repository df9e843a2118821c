/**
 * A JSON reader that checks each value against the kind expected at its position. `JSON.parse` would silently keep the
 * last of two equal names, build every value that a hostile header nests or repeats, and read 1e3 as a whole number.
 * Here the first invalid token is rejected before anything is built for it.
 */

import { dimensionLimit, isUtf8Text, nameLimit } from "./format.js";
import { badFile, quote } from "./rejection.js";

const whitespace: ReadonlySet<string> = new Set([" ", "\t", "\n", "\r"]);

/** Matches possible numbers, which are validated afterwards. */
const numberLike = /[-+.0-9A-Za-z]{1,40}/y;
const wholeNumber = /^(?:0|[1-9][0-9]*)$/;

export class JsonCursor {
  readonly #text: string;
  #at = 0;
  /** The item that is being read, for errors. */
  subject: string;

  constructor(text: string, subject: string) {
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

  array<Item>(readItem: () => Item): Item[] {
    this.#take("[");
    const items: Item[] = [];
    if (this.#skip("]")) return items;
    do {
      if (items.length === dimensionLimit)
        throw this.rejection("one number more", `at most ${dimensionLimit}`);
      items.push(readItem());
    } while (this.#skip(","));
    this.#take("]");
    return items;
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
    if (!isUtf8Text(text)) throw this.rejection(`the text ${quote(token)}`, "whole characters");
    this.#at += token.length;
    return text;
  }

  /** Reads a whole number, 0 or more, that a double represents exactly. */
  count(): number {
    this.#peek();
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

  /** Rejects anything but white space after the value. */
  end(): void {
    if (this.#peek() !== undefined) throw this.rejection(this.#found(), "nothing more");
  }

  rejection(found: string, expected: string, cause?: unknown): Error {
    const message = `In the header, character ${this.#at}, in ${this.subject}: found ${found}, expected ${expected}.`;
    return badFile(message, { character: this.#at }, cause);
  }

  /** The next non-space character; undefined at the end. */
  #peek(): string | undefined {
    while (whitespace.has(this.#text[this.#at] ?? "")) this.#at++;
    return this.#text[this.#at];
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
    let end = this.#at;
    do {
      end = this.#text.indexOf('"', end + 1);
      if (end < 0) throw this.rejection(this.#found(), "a closing quote");
    } while (this.#isEscaped(end));
    return end;
  }

  #isEscaped(index: number): boolean {
    let start = index;
    while (this.#text[start - 1] === "\\") start--;
    return (index - start) % 2 === 1;
  }
}
