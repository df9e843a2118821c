/**
 * Philox4x32-10 of Salmon, Moraes, Dror and Shaw ("Parallel random numbers: as easy as 1, 2, 3", 2011): a stateless function from a
 * counter and a key to four random words. It uses 32-bit integers only, so every machine gives the same bits. The reference for kernels.
 */

/** Four words of 32 bits, each from 0 to 2³² − 1. */
export type Words4 = readonly [number, number, number, number];
/** A 64-bit number as its low and its high 32 bits. */
export type Words2 = readonly [number, number];

export const rounds = 10;
/** The multipliers of the counter's words 0 and 2. */
export const multipliers: Words2 = [0xd2511f53, 0xcd9e8d57];
/** The key increments per round (Weyl constants): the golden ratio and √3 − 1, in 32 bits. */
export const keySteps: Words2 = [0x9e3779b9, 0xbb67ae85];

/**
 * The four words of a counter under a key.
 *
 * ```js
 * philox([0, 0, 0, 0], [0, 0]); // [0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8]
 * ```
 */
export function philox([x0, x1, x2, x3]: Words4, [key0, key1]: Words2): Words4 {
  const words = new Uint32Array(4);
  philoxInto(words, 0, x0, x1, x2, x3, key0, key1);
  const [w0 = 0, w1 = 0, w2 = 0, w3 = 0] = words;
  return [w0, w1, w2, w3];
}

/** Writes the four words of a counter at `words[at]` and after; a word outside of the array is dropped. Allocates nothing. */
export function philoxInto(
  words: Uint32Array,
  at: number,
  x0: number,
  x1: number,
  x2: number,
  x3: number,
  key0: number,
  key1: number,
): void {
  const [multiplier0, multiplier1] = multipliers;
  for (let round = 0; round < rounds; round++) {
    const high0 = highProduct(x0, multiplier0);
    const high1 = highProduct(x2, multiplier1);
    const low0 = Math.imul(x0, multiplier0);
    const low1 = Math.imul(x2, multiplier1);
    x0 = high1 ^ x1 ^ key0;
    x1 = low1;
    x2 = high0 ^ x3 ^ key1;
    x3 = low0;
    key0 = (key0 + keySteps[0]) | 0;
    key1 = (key1 + keySteps[1]) | 0;
  }
  words[at] = x0;
  words[at + 1] = x1;
  words[at + 2] = x2;
  words[at + 3] = x3;
}

/**
 * The upper 32 bits of a 64-bit product, from products of 16-bit halves. No intermediate sum exceeds 32 bits, so the
 * engine uses integers: with doubles this is ten times slower.
 */
function highProduct(a: number, b: number): number {
  const aLow = a & 0xffff;
  const aHigh = a >>> 16;
  const bLow = b & 0xffff;
  const bHigh = b >>> 16;
  const lowest = Math.imul(aLow, bLow);
  const middle = Math.imul(aHigh, bLow) + (lowest >>> 16);
  const otherMiddle = Math.imul(aLow, bHigh) + (middle & 0xffff);
  return (Math.imul(aHigh, bHigh) + (middle >>> 16) + (otherMiddle >>> 16)) | 0;
}
