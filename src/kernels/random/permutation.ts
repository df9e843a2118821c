/** Random permutations, for shuffling: the same on every machine for the same seed and id. */

import { HoldfastError } from "../../errors/index.js";
import { blocksOf, type RandomStream } from "./random-stream.js";

/**
 * The numbers 0 to n − 1 in a uniformly random order (Fisher–Yates, from the back).
 *
 * ```js
 * permutation({ seed: 42, id: 0 }, 5); // the order of epoch 0
 * ```
 */
export function permutation(stream: RandomStream, n: number): Uint32Array<ArrayBuffer> {
  if (!Number.isInteger(n) || n < 0 || n > 2 ** 32 - 1) {
    const message = `Cannot permute ${n} elements; pass a whole number from 0 to 2^32 - 1.`;
    throw new HoldfastError("BAD_ARGUMENT", message, { numbers: { n } });
  }
  const nextBelow = orderNumbers(stream);
  const order = new Uint32Array(n).map((_, index) => index);
  for (let last = n - 1; last > 0; last--) {
    const selected = nextBelow(last + 1);
    const value = order[selected] ?? 0;
    order[selected] = order[last] ?? 0;
    order[last] = value;
  }
  return order;
}

/**
 * Unbiased integers below a limit of at least 2, by rejection: the upper bits of a word, as many as the limit has, are used if they are
 * below the limit. At worst half of the words are rejected.
 */
export function orderNumbers(stream: RandomStream): (limit: number) => number {
  const blockAt = blocksOf(stream, "order");
  let block = 0;
  let words: readonly number[] = [];
  let next = 0;
  const nextWord = (): number => {
    if (next === words.length) {
      words = blockAt(block++);
      next = 0;
    }
    return words[next++] ?? 0;
  };
  return (limit) => {
    const unusedBits = Math.clz32(limit - 1);
    for (;;) {
      const number = nextWord() >>> unusedBits;
      if (number < limit) return number;
    }
  };
}
