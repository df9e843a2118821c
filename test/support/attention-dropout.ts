/** The random state of attention with dropout in tests, and the probabilities that dropout keeps. */

import { type RandomState, scaleOfKept, thresholdOf } from "../../src/kernels/random/index.js";
import type { Lookup, ReferenceShape } from "./attention-reference.js";
import { expectedNumbers } from "./expected-numbers.js";

export const dropoutState: RandomState = { seed: 0x1234567890abcdefn, counter: 0x100000003n };

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
