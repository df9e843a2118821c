/** The numbers of a draw, by the plain Philox. */

import { philox } from "../../src/kernels/random/philox.js";
import type { RandomState } from "../../src/kernels/random/random-state.js";

export function expectedNumbers({ seed, counter }: RandomState, count: number): Uint16Array<ArrayBuffer> {
  const halves = (value: bigint): [number, number] => [Number(value & 0xffffffffn), Number(value >> 32n)];
  const numbers = new Uint16Array(count);
  for (let i = 0; i < count; i += 8) {
    const words = philox([i / 8, 0, ...halves(counter)], halves(seed));
    const eight = words.flatMap((word) => [word & 0xffff, word >>> 16]);
    numbers.set(eight.slice(0, count - i), i);
  }
  return numbers;
}
