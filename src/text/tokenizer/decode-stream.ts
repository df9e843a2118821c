/** Text of ids that arrive one by one, as they are generated. */

/** Decodes a list of ids of which none is skipped. */
type Decode = (ids: readonly number[]) => string;

/** After so many ids without complete text, the text is given out as it is. */
const maxPending = 64;

/**
 * Makes text of ids one by one. An id may be a part of a character; its text comes with the id that completes it. Get one from
 * `Tokenizer.decodeStream()`.
 *
 * @example
 * ```ts
 * import { ByteTokenizer } from "holdfast";
 * const stream = new ByteTokenizer().decodeStream();
 * const parts = [0xe2, 0x82, 0xac, 0x21].map((id) => stream.push(id));
 * console.log(parts); // → [ '', '', '€', '!' ]
 * ```
 */
export class DecodeStream {
  readonly #decode: Decode;
  readonly #isSkipped: (id: number) => boolean;
  /** The ids of the last text given out, for its effect on the next, and the ids since. */
  #ids: number[] = [];
  #given = 0;
  /** How much of the text of `#ids` was given out. */
  #text = "";

  constructor(decode: Decode, isSkipped: (id: number) => boolean) {
    this.#decode = decode;
    this.#isSkipped = isSkipped;
  }

  /**
   * The text that an id completes; empty if a character is still incomplete.
   *
   * @example
   * ```ts
   * import { ByteTokenizer } from "holdfast";
   * console.log(new ByteTokenizer().decodeStream().push(65)); // → A
   * ```
   */
  push(id: number): string {
    if (this.#isSkipped(id)) return "";
    this.#ids.push(id);
    const isOverdue = this.#ids.length - this.#given >= maxPending;
    const text = this.#decode(this.#ids);
    if (!isOverdue && (text.endsWith("\ufffd") || !text.startsWith(this.#text))) return "";
    return this.#give(text);
  }

  /**
   * The text of the ids that no later id can complete. Call it at the end.
   *
   * @example
   * ```ts
   * import { ByteTokenizer } from "holdfast";
   * const stream = new ByteTokenizer().decodeStream();
   * stream.push(0xe2);
   * console.log(stream.end()); // → �
   * ```
   */
  end(): string {
    return this.#give(this.#decode(this.#ids));
  }

  /** Gives out what is new in a text, and keeps only its ids. */
  #give(text: string): string {
    let same = 0;
    while (same < this.#text.length && this.#text[same] === text[same]) same += 1;
    const part = text.slice(same);
    if (part !== "") {
      this.#ids = this.#ids.slice(this.#given);
      this.#given = this.#ids.length;
      this.#text = this.#decode(this.#ids);
    }
    return part;
  }
}
