/** Pseudo-random test input that is the same on every machine. */

/** Marsaglia's xorshift: words from 0 to 2³² − 1. Each seed from 1 on gives another sequence. */
export function randomWords(seed: number): () => number {
  // Without the multiplication, neighbouring seeds would start with similar words.
  let word = Math.imul(seed, 0x9e3779b1) | 1;
  return () => {
    word ^= word << 13;
    word ^= word >>> 17;
    word ^= word << 5;
    return word >>> 0;
  };
}
