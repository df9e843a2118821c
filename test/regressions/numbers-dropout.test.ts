/**
 * N7: dropout masks of two machines differed where a random number equalled the threshold, because each had
 * rounded it differently. The mask is computed on integers: the device's has the bits of the host's, for
 * numbers equal to the threshold too. N11, in part: random numbers depend on the seed and the number of earlier
 * draws.
 */

import assert from "node:assert/strict";
import { manualSeed, nn } from "holdfast";
import { keepMask, scaleOfKept, thresholdOf } from "../../src/kernels/random/index.js";
import { dropout } from "../../src/ops/index.js";
import { openDevice } from "../support/devices.js";
import { expectedNumbers } from "../support/expected-numbers.js";
import { regressionRow } from "../support/regressions.js";
import { sameBytes } from "../support/same-bytes.js";

const cpu = openDevice({ threads: 2 });
const seed = 0x0123456789abcdefn;
const count = 5003;

const numbersOf = (draw: bigint): Uint16Array => expectedNumbers({ seed, counter: draw }, count);

/** The dropout mask for a probability, in the first draw after seeding. */
type Mask = (p: number) => Uint8Array;

const onDevice: Mask = (p) =>
  cpu.step(() => {
    manualSeed(seed);
    const x = cpu.fromHost(new Float32Array(count).fill(1), [count], "f32");
    const values = cpu.apply(dropout, [x, cpu.randomState], { p }).dataSync();
    const mask = Uint8Array.from(values, (value) => (value === 0 ? 0 : 1));
    const scale = Math.fround(scaleOfKept(p));
    const expected = Float32Array.from(mask, (keeps) => (keeps ? scale : 0));
    sameBytes(values, expected, `the elements kept with p = ${p}`);
    return mask;
  });

/** Numbers as fractions, and the probability rounded to f32. */
const byFloats: Mask = (p) => {
  const probability = Math.fround(1 - p);
  return Uint8Array.from(numbersOf(0n), (number) => (number * 2 ** -16 < probability ? 1 : 0));
};

/** Numbers compared with the threshold as signed ones. */
const bySignedNumbers: Mask = (p) => {
  const signed = (number: number): number => (number << 16) >> 16;
  const threshold = signed(thresholdOf(1 - p));
  return Uint8Array.from(numbersOf(0n), (number) => (signed(number) < threshold ? 1 : 0));
};

regressionRow<Mask>({
  row: "N7",
  rule: "the dropout mask is computed on integers: the device's bits are the host's, at the threshold too",
  sound: onDevice,
  faults: {
    "fractions are compared with a rounded probability": byFloats,
    "numbers have signs": bySignedNumbers,
  },
  check(mask) {
    const numbers = numbersOf(0n);
    const numbersOnThreshold = [...numbers.slice(0, 12), numbers[count - 1]!];
    // 1 − p is then number / 2¹⁶, a little more, or the next step.
    const onThreshold = numbersOnThreshold.flatMap((number) =>
      [0, 0.4, 1].map((more) => 1 - (number + more) / 2 ** 16),
    );
    for (const p of [0.1, 0.25, 1 / 3, 0.5, 0.75, 0.999, 2 ** -15, 1 - 2 ** -16, ...onThreshold]) {
      sameBytes(mask(p), keepMask(numbers, thresholdOf(1 - p)), `the mask with p = ${p}`);
    }
    for (const [at, number] of numbersOnThreshold.slice(0, 12).entries()) {
      assert.equal(mask(1 - number / 2 ** 16)[at], 0, `number ${at} on the threshold is kept`);
      assert.equal(mask(1 - (number + 1) / 2 ** 16)[at], 1, `number ${at} below the threshold is dropped`);
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
    sameBytes(first, keepMask(numbersOf(0n), thresholdOf(0.5)), "the first draw");
    sameBytes(second, keepMask(numbersOf(1n), thresholdOf(0.5)), "the second draw");
  },
});
