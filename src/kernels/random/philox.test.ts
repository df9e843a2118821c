/** Philox against the known answers of its authors, and against an implementation with bigints. */

import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { keySteps, multipliers, philox, rounds, type Words2, type Words4 } from "./philox.js";

const ones = 0xffffffff;

/** From `kat_vectors` of Random123, philox4x32 10. */
const knownAnswers: readonly { counter: Words4; key: Words2; words: Words4 }[] = [
  { counter: [0, 0, 0, 0], key: [0, 0], words: [0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8] },
  {
    counter: [ones, ones, ones, ones],
    key: [ones, ones],
    words: [0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd],
  },
  {
    counter: [0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344],
    key: [0xa4093822, 0x299f31d0],
    words: [0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1],
  },
];

test("the published known answers are reproduced", () => {
  for (const { counter, key, words } of knownAnswers) assert.deepEqual(philox(counter, key), words);
});

function philoxInBigints(counter: Words4, key: Words2): Words4 {
  const low = (value: bigint): bigint => value & 0xffffffffn;
  let [x0, x1, x2, x3] = counter.map(BigInt) as [bigint, bigint, bigint, bigint];
  for (let round = 0; round < rounds; round++) {
    const roundKey = key.map((word, side) => low(BigInt(word) + BigInt(round) * BigInt(keySteps[side]!)));
    const [product0, product1] = [x0 * BigInt(multipliers[0]), x2 * BigInt(multipliers[1])];
    [x0, x1, x2, x3] = [
      (product1 >> 32n) ^ x1 ^ roundKey[0]!,
      low(product1),
      (product0 >> 32n) ^ x3 ^ roundKey[1]!,
      low(product0),
    ];
  }
  return [Number(x0), Number(x1), Number(x2), Number(x3)];
}

test("every counter and key give the words of the bigint implementation", () => {
  const word = fc.oneof(
    fc.integer({ min: 0, max: ones }),
    fc.constantFrom(0, 0xffff, 0x10000, 2 ** 31, ones),
  );
  fc.assert(
    fc.property(fc.tuple(word, word, word, word), fc.tuple(word, word), (counter, key) => {
      assert.deepEqual(philox(counter, key), philoxInBigints(counter, key));
    }),
  );
});
