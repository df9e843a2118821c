/** Token sequences in typed arrays: four bytes for a token. */

import { HoldfastError } from "../../errors/index.js";

const chunkTokens = 2 ** 20;

/** Sequences of tokens. A token that does not count in the loss is stored as the complement of its id, a negative number. */
export class TokenStore {
  readonly #chunks: Int32Array[] = [];
  /** The used tokens of the last chunk. */
  #used = 0;
  readonly #places: { chunks: number[]; starts: number[]; ends: number[] } = {
    chunks: [],
    starts: [],
    ends: [],
  };
  #tokens = 0;
  readonly #maxTokens: number;

  constructor(maxTokens: number) {
    this.#maxTokens = maxTokens;
  }

  /** The number of sequences. */
  get length(): number {
    return this.#places.starts.length;
  }

  get tokens(): number {
    return this.#tokens;
  }

  /** Adds a sequence of `length` tokens and returns its memory, to be written. */
  add(length: number): Int32Array {
    this.#tokens += length;
    if (this.#tokens > this.#maxTokens) {
      throw new HoldfastError(
        "BAD_ARGUMENT",
        `The texts have more than ${this.#maxTokens} tokens, the maximum. Use a part of the texts, or raise maxTokens if the memory is enough.`,
        { numbers: { maxTokens: this.#maxTokens } },
      );
    }
    let chunk = this.#chunks.at(-1);
    if (!chunk || chunk.length - this.#used < length) {
      chunk = new Int32Array(Math.max(chunkTokens, length));
      this.#chunks.push(chunk);
      this.#used = 0;
    }
    const { chunks, starts, ends } = this.#places;
    chunks.push(this.#chunks.length - 1);
    starts.push(this.#used);
    this.#used += length;
    ends.push(this.#used);
    return chunk.subarray(this.#used - length, this.#used);
  }

  /** The tokens of a sequence. */
  at(index: number): Int32Array {
    const { chunks, starts, ends } = this.#places;
    return this.#chunks[chunks[index] ?? -1]?.subarray(starts[index], ends[index]) ?? new Int32Array();
  }

  lengthOf(index: number): number {
    return (this.#places.ends[index] ?? 0) - (this.#places.starts[index] ?? 0);
  }
}
