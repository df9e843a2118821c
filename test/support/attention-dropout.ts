/** The random state of attention with dropout in tests, and the probabilities that dropout keeps. */

import { type AttentionShape, keptBitsShape } from "../../src/kernels/attention/index.js";
import { encodeState, type RandomState, scaleOfKept, thresholdOf } from "../../src/kernels/random/index.js";
import type { Runtime } from "../../src/runtime/index.js";
import type { Lookup, ReferenceShape } from "./attention-reference.js";
import { expectedNumbers } from "./expected-numbers.js";
import { put } from "./kernel-runtime.js";

export const dropoutState: RandomState = { seed: 0x1234567890abcdefn, counter: 0x100000003n };

/** The memory of dropout in both directions: the draw, and the bits of kept probabilities if `storesBits`. */
export function dropoutMemory(runtime: Runtime, shape: AttentionShape, storesBits: boolean) {
  const draw = { randomState: put(runtime, encodeState(dropoutState), "randomState") };
  if (!storesBits) return { forward: draw, backward: draw };
  const words = keptBitsShape(shape).reduce((product, size) => product * size, 1);
  const bits = { keptBits: runtime.arena.allocate(4 * words, "keptBits") };
  return { forward: { ...draw, ...bits }, backward: bits };
}

/** 0 where the composed op drops an element of [batch, heads, rows, columns], and its scale elsewhere. */
export function keptBy({ batch, heads, rows, columns }: ReferenceShape, p: number): Lookup {
  // Rows begin with a new Philox call.
  const rowLength = Math.ceil(columns / 8) * 8;
  const numbers = expectedNumbers(dropoutState, batch * heads * rows * rowLength);
  const threshold = thresholdOf(1 - p);
  return (b, h, row, column) => {
    const number = numbers[((b * heads + h) * rows + row) * rowLength + column]!;
    return number < threshold ? scaleOfKept(p) : 0;
  };
}
