/** The random state of attention with dropout in tests, and the probabilities that dropout keeps. */

import { type RandomState, thresholdOf } from "../../src/kernels/random/index.js";
import type { Lookup, ReferenceShape } from "./attention-reference.js";
import { expectedWords } from "./expected-words.js";

export const dropoutState: RandomState = { seed: 0x1234567890abcdefn, counter: 0x100000003n };

/** 0 where the composed op drops an element of [batch, heads, rows, columns], and its scale elsewhere. */
export function keptBy({ batch, heads, rows, columns }: ReferenceShape, p: number): Lookup {
  const words = expectedWords(dropoutState, batch * heads * rows * columns);
  const threshold = thresholdOf(1 - p);
  return (b, h, row, column) => {
    const word = words[((b * heads + h) * rows + row) * columns + column]!;
    return word < threshold ? 1 / (1 - p) : 0;
  };
}
