/** Numbers that look random and are the same on every machine: what the test is fed with. */

/** Words from 0 to 2³² − 1, one after the other (Marsaglia's xorshift); seeds from 1 on start different rows of them. */
export function drawWords(seed: number): () => number {
  // Neighbouring seeds would begin alike.
  let word = Math.imul(seed, 0x9e3779b1) | 1;
  return () => {
    word ^= word << 13;
    word ^= word >>> 17;
    word ^= word << 5;
    return word >>> 0;
  };
}
