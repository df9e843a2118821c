/**
 * N7: dropout masks of two machines differed where a random word equalled the threshold, because each had
 * rounded it differently. The mask is computed on integers: the device's has the bits of the host's, for
 * words equal to the threshold too. N11, in part: random numbers depend on the seed and the number of earlier
 * draws.
 */

import assert from "node:assert/strict";
import { manualSeed, nn } from "holdfast";
import { keepMask, philox, thresholdOf, uniform } from "../../src/kernels/random/index.js";
import { dropout } from "../../src/ops/index.js";
import { openDevice } from "../support/devices.js";
import { regressionRow } from "../support/regressions.js";
import { sameBytes } from "../support/same-bytes.js";

const cpu = openDevice({ threads: 2 });
const seed = 0x0123456789abcdefn;
const count = 5003;

/** The random words of the device for this seed, by a plain Philox. */
function wordsOf(draw: bigint): Uint32Array {
  const halves = (value: bigint): [number, number] => [Number(value & 0xffffffffn), Number(value >> 32n)];
  const words = new Uint32Array(count);
  for (let at = 0; at < count; at += 4) {
    words.set(philox([at / 4, 0, ...halves(draw)], halves(seed)).slice(0, count - at), at);
  }
  return words;
}

/** The dropout mask for a probability, in the first draw after seeding. */
type Mask = (p: number) => Uint8Array;

const onDevice: Mask = (p) =>
  cpu.step(() => {
    manualSeed(seed);
    const x = cpu.fromHost(new Float32Array(count).fill(1), [count], "f32");
    const [kept, mask] = cpu.applyAll(dropout, [x, cpu.randomState], { p });
    const scale = Math.fround(1 / (1 - p));
    const values = kept!.dataSync();
    const expected = Float32Array.from(mask!.dataSync(), (keeps) => (keeps ? scale : 0));
    sameBytes(values, expected, `the elements kept with p = ${p}`);
    return Uint8Array.from(mask!.dataSync());
  });

/** Words as fractions, and the probability rounded to f32. */
const byFloats: Mask = (p) => {
  const probability = Math.fround(1 - p);
  return Uint8Array.from(wordsOf(0n), (word) => (uniform(word) < probability ? 1 : 0));
};

/** Words compared with the threshold as signed numbers. */
const bySignedWords: Mask = (p) => {
  const threshold = thresholdOf(1 - p) | 0;
  return Uint8Array.from(wordsOf(0n), (word) => ((word | 0) < threshold ? 1 : 0));
};

regressionRow<Mask>({
  row: "N7",
  rule: "the dropout mask is computed on integers: the device's bits are the host's, at the threshold too",
  sound: onDevice,
  faults: {
    "fractions are compared with a rounded probability": byFloats,
    "words have signs": bySignedWords,
  },
  check(mask) {
    const words = wordsOf(0n);
    const wordsOnThreshold = [...words.slice(0, 12), words[count - 1]!];
    // 1 − p is then word / 2³² or its neighbour, both exact in a double.
    const onThreshold = wordsOnThreshold.flatMap((word) => [1 - word / 2 ** 32, 1 - (word + 1) / 2 ** 32]);
    for (const p of [0.1, 0.25, 1 / 3, 0.5, 0.75, 0.999, 2 ** -31, 1 - 2 ** -32, ...onThreshold]) {
      sameBytes(mask(p), keepMask(words, thresholdOf(1 - p)), `the mask with p = ${p}`);
    }
    for (const [at, word] of wordsOnThreshold.slice(0, 12).entries()) {
      assert.equal(mask(1 - word / 2 ** 32)[at], 0, `word ${at} on the threshold is kept`);
      assert.equal(mask(1 - (word + 1) / 2 ** 32)[at], 1, `word ${at} below the threshold is dropped`);
    }
  },
});

/** Two draws in a row after seeding. */
type TwoDraws = () => readonly [Uint8Array, Uint8Array];

const twoMasks = (): readonly [Uint8Array, Uint8Array] =>
  cpu.step(() => {
    const x = cpu.fromHost(new Float32Array(count).fill(1), [count], "f32");
    const draw = (): Uint8Array => Uint8Array.from(nn.functional.dropout(x, 0.5).ne(0).dataSync());
    return [draw(), draw()];
  });

regressionRow<TwoDraws>({
  row: "N11",
  rule: "one seed gives the same dropout masks, draw for draw, and no two draws are equal",
  sound: () => {
    manualSeed(seed);
    return twoMasks();
  },
  faults: {
    "the draws continue after seeding": twoMasks,
    "every draw starts again": () => {
      manualSeed(seed);
      const [first] = twoMasks();
      return [first, first];
    },
  },
  check(draws) {
    const [first, second] = draws();
    const [again, secondAgain] = draws();
    sameBytes(again, first, "the first draw of the same seed");
    sameBytes(secondAgain, second, "the second draw of the same seed");
    sameBytes(first, keepMask(wordsOf(0n), thresholdOf(0.5)), "the first draw");
    sameBytes(second, keepMask(wordsOf(1n), thresholdOf(0.5)), "the second draw");
  },
});
