/** Random orders, for shuffling: the same on every machine for the same seed and id. */

import { HoldfastError } from "../../errors/index.js";
import { blocksOf, type RandomStream } from "./random-stream.js";

/**
 * The numbers 0 to n − 1 in a random order (Fisher–Yates, from the back), every order being equally likely.
 *
 * ```js
 * permutation({ seed: 42, id: 0 }, 5); // the order of epoch 0
 * ```
 */
export function permutation(stream: RandomStream, n: number): Uint32Array<ArrayBuffer> {
  if (!Number.isInteger(n) || n < 0 || n > 2 ** 32 - 1) {
    const message = `A permutation of ${n} elements; give a whole number from 0 to 2^32 - 1.`;
    throw new HoldfastError("BAD_ARGUMENT", message, { numbers: { n } });
  }
  const nextBelow = numbersBelow(stream);
  const order = new Uint32Array(n).map((_, index) => index);
  for (let last = n - 1; last > 0; last--) {
    const chosen = nextBelow(last + 1);
    const moved = order[chosen] ?? 0;
    order[chosen] = order[last] ?? 0;
    order[last] = moved;
  }
  return order;
}

/**
 * Gives whole numbers below a limit of 2 or more without bias: of each word only as many upper bits are used as the limit has, and a
 * word whose bits reach the limit is thrown away. At worst every second one is.
 */
function numbersBelow(stream: RandomStream): (limit: number) => number {
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
