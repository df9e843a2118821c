/** The words that `randomBits` draws, by the plain Philox. */

import { philox } from "../../src/kernels/random/philox.js";
import type { RandomState } from "../../src/kernels/random/random-state.js";

export function expectedWords({ seed, counter }: RandomState, count: number): Uint32Array {
  const halves = (value: bigint): [number, number] => [Number(value & 0xffffffffn), Number(value >> 32n)];
  const words = new Uint32Array(count);
  for (let i = 0; i < count; i += 4) {
    const four = philox([i / 4, 0, ...halves(counter)], halves(seed));
    words.set(four.slice(0, count - i), i);
  }
  return words;
}
